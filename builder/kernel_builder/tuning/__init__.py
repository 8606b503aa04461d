"""Pre-tuning: collect launches, measure configurations, build decision trees, evaluate them.

A project's workload file imports `Case`, `drawn`, `Sizes` and `workload` from here; that imports
nothing heavy.
"""

from .drawn import Sizes, drawn
from .workloads import Case, Workload, workload

__all__ = ["Case", "Sizes", "Workload", "drawn", "workload"]
