"""From measurements to a tree: pure, deterministic, standard library only.

    fit(matrix, options) -> Fitted

Configurations and tree are chosen together for what users pay: the slowdown against the best
known configuration of each point, weighted, with an extra charge above the goal. How many
configurations and how deep a tree is decided by leaving shapes out, not by training cost.
"""

from .model import Fitted, fit
from .shaped import Complexity, FitOptions

__all__ = ["Complexity", "FitOptions", "Fitted", "fit"]
