"""Pre-tuning: collect launches, measure configurations, build decision trees, evaluate them.

A project's workload file imports `Case` and `workload` from here; nothing heavy is imported.
"""

from .workloads import Case, Workload, workload

__all__ = ["Case", "Workload", "workload"]
