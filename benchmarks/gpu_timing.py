"""Times of GPU calls: CUDA-graph replays for the device's share, event-timed loops for the
whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

CALLS = 10  # calls in a graph, and in a loop
Call = Callable[[], object]


def _timed(run: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / CALLS


def capture(call: Call, warm_up: int = 25) -> torch.cuda.CUDAGraph:
    """A graph of CALLS calls, captured after `warm_up` calls on a side stream."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def longest(graphs: Mapping[str, torch.cuda.CUDAGraph]) -> float:
    """Milliseconds of the slowest contender's call, roughly."""
    return max(_timed(graph.replay) for graph in graphs.values())


def replay(
    graphs: Mapping[str, torch.cuda.CUDAGraph], replays: int, discard: int
) -> dict[str, list[float]]:
    """Milliseconds a call, one sample a graph replay, after `discard` that are thrown away.

    The contenders are replayed in turn: a card that slows down as it warms up slows all of them
    alike.
    """
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(replays + discard):
        for name, graph in graphs.items():
            samples[name].append(_timed(graph.replay))
    return {name: [round(ms, 6) for ms in values[discard:]] for name, values in samples.items()}


def device_ms(
    calls: Mapping[str, Call], replays: int = 30, discard: int = 5
) -> dict[str, list[float]]:
    """Milliseconds a call on the device, see `replay`."""
    return replay({name: capture(call) for name, call in calls.items()}, replays, discard)


def end_to_end_ms(calls: Mapping[str, Call], repeats: int = 30) -> dict[str, list[float]]:
    """Milliseconds a call of a Python loop of CALLS calls, one sample a loop, the contenders in
    turn."""

    def loop(call: Call) -> Call:
        def run() -> None:
            for _ in range(CALLS):
                call()

        return run

    loops = {name: loop(call) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(repeats + 1):
        for name, run in loops.items():
            samples[name].append(_timed(run))
    return {name: [round(ms, 6) for ms in values[1:]] for name, values in samples.items()}
