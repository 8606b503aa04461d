"""From the samples of one configuration on one point to a time and its error."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence

from kernel_builder.tuning.matrix import Cell

_BY_MEDIAN = ("cuda-graph", "jax-chain")
"""Methods of before, under which logs were written and trees built from medians."""


def summarise(samples: Sequence[float], method: object) -> Cell:
    """The time that samples tell of, by the method of the policy under which they were taken.

    Args:
        samples: ms, at least one.
        method: the policy's, None where it states none. Logs of a method of before keep the median,
            so that what was built from them can be built again.
    """
    return median(samples) if method in _BY_MEDIAN else lowest(samples)


def lowest(samples: Sequence[float]) -> Cell:
    """The lowest sample, and by how much the second lowest is above it as its error.

    What disturbs a launch can only add to its time, and some of it stays for as long as a CUDA
    graph does (see `timing`): a median keeps it wherever half of the samples have it. The error is
    no bound: two samples may be disturbed alike. One sample alone, as of a model, has none.
    """
    least = heapq.nsmallest(2, samples)
    return Cell(ms=least[0], error=least[-1] - least[0], samples=len(samples))


def median(samples: Sequence[float]) -> Cell:
    """Median, and its standard error from the median absolute deviation.

    For normal noise the deviation is 1.4826 x MAD, and the median of n samples has an error of
    1.2533 deviations / sqrt(n).
    """
    ms = statistics.median(samples)
    spread = 1.4826 * statistics.median(abs(s - ms) for s in samples)
    return Cell(ms=ms, error=1.2533 * spread / math.sqrt(len(samples)), samples=len(samples))
