"""Host time of one launch with a known signature: bare @triton.jit, triton.autotune, and ours.

12 arguments of which 3 are tensors, 2 configurations. With a GPU the launches are real; without one
the launcher does nothing, and the first line says so. Times are interleaved in rounds; the figure
is the median over rounds of the mean over a round's launches.

    python -m benchmarks.dispatch [--json [FILE]] [--rounds N]
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns when it is unset

import torch

from benchmarks import _dispatch_kernels as kernels
from benchmarks._report import Figure, Report, arguments, emit, environment
from kernelhub.dispatch.device import torch_device
from kernelhub.dispatch.dispatcher import bound_tree
from kernelhub.dispatch.triton import TritonTunable
from kernelhub.formats.tree import DeviceFacts, Leaf, Numeric, Split, Tree, compile_tree

LAUNCHES = 500


def tree_for(device: DeviceFacts, kernel: str) -> Tree:
    """Three tests on M, N and K, as small trees have."""
    config = {"BN": 64, "num_warps": 4, "num_stages": 3, "num_ctas": 1}
    small, large = Leaf((0, 1)), Leaf((1, 0))
    square = Split(Numeric(("M",), 1.5, ("N",)), small, large)
    return Tree(
        kernel=kernel,
        device=device,
        tools={},
        source_hash="sha256:" + "0" * 64,
        features={"M": "int", "N": "int", "K": "int"},
        configs=({"BM": 64, **config}, {"BM": 128, **config}),
        root=Split(Numeric(("M", "N"), 1e6), Split(Numeric(("K",), 300), large, square), large),
    )


def tuned(kernel: Any, device: DeviceFacts, *, prepare: bool = True) -> Any:
    """The kernel with a tree; without `prepare` every launch goes through Triton's binder."""
    tunable = TritonTunable("tuned", kernel, device)
    tree = bound_tree(tree_for(device, "tuned"), "tuned", overlay=False)
    tunable.give(lambda: [tree])
    tunable.dispatcher.say_once = lambda _: None  # type: ignore[method-assign]  # no real source hash
    if not prepare:
        tunable.launcher.prepared.possible = False
    return kernel


def subjects(device: DeviceFacts, where: str) -> dict[str, Callable[[], Any]]:
    """Name to one launch."""
    a, b, c = (torch.zeros(1024, device=where) for _ in range(3))
    rest = (512, 512, 512, 1, 1, 1, 1.5)
    fixed = {"BM": 64, "BN": 64, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    bare, autotuned = kernels.bare, kernels.autotuned
    ordinary = tuned(kernels.tuned_ordinary, device, prepare=False)
    prepared = tuned(kernels.tuned, device)
    compiled = bare[(1,)](a, b, c, *rest, **fixed)
    grid = lambda meta: (1,)  # noqa: E731, ARG005
    return {
        "bare @triton.jit": lambda: bare[(1,)](a, b, c, *rest, **fixed),
        "triton.autotune": lambda: autotuned[(1,)](a, b, c, *rest),
        "tree, Triton's binder": lambda: ordinary[(1,)](a, b, c, *rest),
        "tree, prepared": lambda: prepared[(1,)](a, b, c, *rest),
        "tree, prepared, callable grid": lambda: prepared[grid](a, b, c, *rest),
        "compiled kernel, called directly": lambda: compiled[(1, 1, 1)](a, b, c, *rest, 64, 64),
    }


def measure(
    launches: dict[str, Callable[[], Any]], rounds: int, wait: Any
) -> dict[str, list[float]]:
    """Microseconds of host time for one launch, by subject and round."""
    samples: dict[str, list[float]] = {name: [] for name in launches}
    for launch in launches.values():
        for _ in range(50):
            launch()
    gc.disable()
    for _ in range(rounds):
        for name, launch in launches.items():
            wait()
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                launch()
            samples[name].append((time.perf_counter() - start) / LAUNCHES * 1e6)
    gc.enable()
    return samples


def choosing(device: DeviceFacts) -> float:
    """Microseconds that the compiled tree alone takes."""
    choose = compile_tree(tree_for(device, "tuned")).choose
    start = time.perf_counter()
    for _ in range(200_000):
        choose(512, 512, 512)
    return (time.perf_counter() - start) / 200_000 * 1e6


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    if gpu:
        device, where, wait = torch_device(0), "cuda", torch.cuda.synchronize
    else:
        from benchmarks import fake_gpu

        fake_gpu.use()
        device, where, wait = fake_gpu.H200, "cpu", lambda: None
    assert device is not None
    samples = measure(subjects(device, where), options.rounds, wait)
    us = {name: statistics.median(values) for name, values in samples.items()}
    bare, autotune = us["bare @triton.jit"], us["triton.autotune"]
    ordinary, prepared = us["tree, Triton's binder"], us["tree, prepared"]
    figures = [
        *(Figure(name=name, value=value, unit="us") for name, value in us.items()),
        Figure(name="the tree alone", value=choosing(device), unit="us"),
        Figure(name="tree, Triton's binder - bare", value=ordinary - bare, unit="us", target=1.5,
               peer="bare @triton.jit"),
        Figure(name="tree, Triton's binder - autotune", value=ordinary - autotune, unit="us",
               target=0.0, peer="triton.autotune"),
        Figure(name="tree, prepared - bare", value=prepared - bare, unit="us", target=0.0,
               peer="bare @triton.jit"),
        Figure(name="bare / tree, prepared", value=bare / prepared, unit="x",
               peer="bare @triton.jit"),
    ]  # fmt: skip
    launcher = "real launches" if gpu else "no GPU: the launcher does nothing"
    where = environment(device=device.name, launcher=launcher)
    title = "Host time of one launch"
    emit(Report(title=title, figures=figures, environment=where, samples=samples), options)


if __name__ == "__main__":
    main()
