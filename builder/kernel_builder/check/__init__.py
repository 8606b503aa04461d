"""`kernel-builder check`: every fault of a project at once, each with its place and remedy.

`report.py` runs the rules, `rules.py` is their table, and each module beside them is one of them.
Sources are read and parsed, never imported; what has to be run (the compilation of Triton kernels)
runs in worker processes.
"""

from .report import Report, check_project
from .rules import RULES, Rule

__all__ = ["RULES", "Report", "Rule", "check_project"]
