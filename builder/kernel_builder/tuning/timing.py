"""Device time of one launch by CUDA-graph replay.

A graph holds several launches, enough for some tenths of a millisecond; a long one is alone. Each
sample is of a graph of its own: the replays of one graph agree to some thousandths, while another
graph of the same launch may take 1.2 to 1.8 times as long for as long as it exists, above all where
a launch takes less than three microseconds. So the lowest of several graphs is what repeats (see
`summary.lowest`); samples of one graph would all tell the same chance.

Before each sample the device is kept busy by a short wait, so that the start event, the replay and
the end event are all queued before the first of them is reached: no host time is in the sample. A
sample for which that was not so is taken again with a longer wait.

The policy "warm" replays launches one after the other on the same arguments, as a kernel in a loop
would run: small arguments come from the L2 cache. "cold" overwrites the cache before each sample
and has one launch in the graph.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelhub.errors import TuningError

_TARGET_MS = 0.4
_MOST_LAUNCHES = 40
_LEAST_LAUNCHES = 2
_LONG_MS = 1.0  # a launch of this length is sampled alone; a replay's own 0.004 ms are lost in it
_WAIT_CYCLES = 200_000  # about 0.1 ms
_LONGEST_WAIT = 64 * _WAIT_CYCLES
_ATTEMPTS = 30
_FLUSH_BYTES = 256 << 20  # several times the L2 of any GPU


@dataclass(slots=True, kw_only=True)
class Timed:
    """One configuration, ready to be sampled once."""

    graph: Any
    launches: int


class GraphTimer:
    """Samples launches on the current CUDA device. Used from one thread.

    Args:
        torch: the module.
        l2: "warm" or "cold".
    """

    method = "cuda-graphs"

    def __init__(self, torch: Any, l2: str) -> None:
        self._torch = torch
        self._cold = l2 == "cold"
        self._stream = torch.cuda.Stream()
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._wait = _WAIT_CYCLES
        self._flush = (
            torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda") if self._cold else None
        )

    def capture(self, run: Callable[[], object]) -> Timed:
        """Record launches of a configuration that has run before into a graph.

        Raises whatever `run` raises, and RuntimeError where it does what a graph cannot hold.
        """
        torch = self._torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            launches = self._launches(run)
            # Not `torch.cuda.graph`, which empties torch's memory cache at every capture. Other
            # threads compile meanwhile; what they call must not end this thread's capture.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for _ in range(launches):
                    run()
            finally:
                graph.capture_end()
        timed = Timed(graph=graph, launches=launches)
        self._once(timed)  # the first replay uploads the graph
        return timed

    def sample(self, timed: Timed) -> float:
        """Milliseconds of one launch.

        Raises:
            TuningError: the host is too busy to keep the device's queue filled.
        """
        for _ in range(_ATTEMPTS):
            ms, queued = self._once(timed)
            if queued:
                # A host that was busy for a moment must not slow down all that follows.
                self._wait = max(_WAIT_CYCLES, self._wait * 3 // 4)
                return ms
            self._wait = min(self._wait * 2, _LONGEST_WAIT)
        raise TuningError(
            "the host is too busy to keep the GPU's queue filled, so times would include waiting",
            hint="stop other programs on this machine",
        )

    def _once(self, timed: Timed) -> tuple[float, bool]:
        torch, (start, end) = self._torch, self._events
        with torch.cuda.stream(self._stream):
            if self._flush is not None:
                self._flush.zero_()
            torch.cuda._sleep(self._wait)
            start.record()
            timed.graph.replay()
            end.record()
        queued = not start.query()
        end.synchronize()
        return start.elapsed_time(end) / timed.launches, queued

    def _launches(self, run: Callable[[], object]) -> int:
        if self._cold:
            return 1
        start, end = self._events
        self._torch.cuda._sleep(self._wait)
        start.record()
        run()
        end.record()
        end.synchronize()
        estimate = max(start.elapsed_time(end), 1e-4)
        if estimate >= _LONG_MS:
            return 1
        return int(max(_LEAST_LAUNCHES, min(_MOST_LAUNCHES, _TARGET_MS / estimate)))


def interleaved(
    sample: Callable[[int], float | None],
    count: int,
    rounds: int,
    *,
    tick: Callable[[], None],
    seed: int = 0,
) -> list[list[float]]:
    """Samples of each of `count`, `rounds` of them; each round takes one of every one in changing
    order.

    Args:
        sample: takes one; None if it cannot, then that one is not asked again.
        tick: called after each round, to show that the work goes on.
    """
    samples: list[list[float]] = [[] for _ in range(count)]
    left = list(range(count))
    shuffle = random.Random(seed)  # noqa: S311 - an order, no secret
    for _ in range(rounds):
        shuffle.shuffle(left)
        for index in tuple(left):
            taken = sample(index)
            if taken is None:
                left.remove(index)
            else:
                samples[index].append(taken)
        tick()
    return samples
