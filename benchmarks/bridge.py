"""What torch pays to call JAX: host time of a small jitted add by hand, and through as_torch.

(8, 128) float32 on the GPU if torch and JAX both see one, else on the CPU. Times are interleaved in
rounds; each round ends with a wait for the device. The figure is the median over rounds of the mean
over a round's calls.

    XLA_PYTHON_CLIENT_PREALLOCATE=false python -m benchmarks.bridge [--json [FILE]] [--rounds N]
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

from benchmarks._report import Figure, Report, arguments, emit, environment
from kernelhub.bridge import as_torch

CALLS = 200


def subjects(where: str) -> dict[str, Callable[[], Any]]:
    """Name to one call."""
    x = torch.randn(8, 128, device=where)
    leaf = x.clone().requires_grad_()
    array = jax.dlpack.from_dlpack(x)
    add, ours = jax.jit(jnp.add), as_torch(jnp.add)
    result = add(array, array)

    def by_hand() -> torch.Tensor:
        mine = jax.dlpack.from_dlpack(x)
        return torch.from_dlpack(add(mine, mine))

    return {
        "torch, no JAX": lambda: torch.add(x, x),
        "jax.jit, no torch": lambda: add(array, array),
        "torch to jax": lambda: jax.dlpack.from_dlpack(x),
        "jax to torch": lambda: torch.from_dlpack(result),
        "by hand, DLPack both ways": by_hand,
        "as_torch": lambda: ours(x, x),
        "as_torch, recording a gradient": lambda: ours(leaf, leaf),
    }


def measure(
    calls: dict[str, Callable[[], Any]], rounds: int, wait: Callable[[], object]
) -> dict[str, list[float]]:
    """Microseconds for one call, by subject and round."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(20):
            call()
    gc.disable()
    for _ in range(rounds):
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            wait()
            samples[name].append((time.perf_counter() - start) / CALLS * 1e6)
    gc.enable()
    return samples


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    gpu = torch.cuda.is_available() and jax.default_backend() == "gpu"
    where = "cuda" if gpu else "cpu"
    wait = torch.cuda.synchronize if gpu else lambda: None
    samples = measure(subjects(where), options.rounds, wait)
    us = {name: statistics.median(values) for name, values in samples.items()}
    figures = [
        *(Figure(name=name, value=value, unit="us") for name, value in us.items()),
        Figure(
            name="as_torch - by hand",
            value=us["as_torch"] - us["by hand, DLPack both ways"],
            unit="us",
            peer="by hand, DLPack both ways",
        ),
    ]
    device = torch.cuda.get_device_name() if gpu else "CPU"
    facts, title = environment(device=device), "Host time of a call from torch into JAX"
    emit(Report(title=title, figures=figures, environment=facts, samples=samples), options)


if __name__ == "__main__":
    main()
