"""From measurements to a tree: pure, deterministic, numpy at most.

    fit(matrix, options) -> Fitted

Configurations and tree are chosen together for what users pay: the slowdown against the best
known configuration of each point, weighted, with an extra charge above the goal. How many
configurations, how deep a tree, and whether a forest teaches it between the measured points is
decided by leaving shapes out, not by training cost.
"""

from .model import Fitted, fit
from .shaped import Complexity, FitOptions

__all__ = ["Complexity", "FitOptions", "Fitted", "fit"]
