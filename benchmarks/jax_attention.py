"""Pallas attention against jax.nn.dot_product_attention (XLA and cuDNN), in one run, on a GPU.

    python -m benchmarks.jax_attention [--candidates FILE] [--minutes M] [--rows FILE]

bf16, not causal, arrays of (B, S, H, D). Device time: one compiled program runs `repeats` times ten
calls, the result of each being the queries of the next, so that no call can be left out, joined
with another or run beside it; K and V are random, two sets in turn. The time is the wall clock of
the whole program, at least some milliseconds, over the number of calls; the median of 5, the
contenders in turn. Programs are compiled before anything is timed, several at once.

The figures are of the package's public function with what it chooses. With --candidates, a JSON
list of {"dims": [head dims], "config": {...}}, those are timed too and stand in the rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks._report import Figure, Report, arguments, emit, environment
from benchmarks.attention_shapes import TUNED, Shape

PACKAGE = Path(__file__).resolve().parents[1] / "examples/flash-attn/jax-ext"
CALLS, ROUNDS, COMPILERS = 10, 5, 12
PROGRAM_SECONDS = 6e-3
ASSUMED_RATE = 350e12  # FLOP/s; only for the number of repeats
LIMIT = 2e-2  # relative error in norm against XLA's
PEERS, OURS = ("xla", "cudnn"), "pallas"
# How XLA, Pallas and the cuDNN binding say that they cannot do something.
_UNFIT = (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError)
Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]


def flops(shape: Shape) -> float:
    batch, heads, length, dim = shape
    return 4.0 * batch * heads * length * length * dim


def repeats(shape: Shape) -> int:
    call = flops(shape) / ASSUMED_RATE + 4e-6
    return max(1, min(100, math.ceil(PROGRAM_SECONDS / (CALLS * call))))


def peer(implementation: str) -> Attention:
    return partial(jax.nn.dot_product_attention, implementation=implementation)


def ours(config: Mapping[str, Any] | None) -> Attention:
    """The package's own function, or its kernel with one configuration."""
    if config is None:
        package = importlib.import_module("flash_attn")
        return package.flash_attn_func  # type: ignore[no-any-return]
    module = importlib.import_module("flash_attn.gpu_forward")
    kernel, config = module.attention_gpu.function, {**config}
    config["schedule"] = getattr(module, config["schedule"])

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scale = q.shape[-1] ** -0.5
        return kernel(q, k, v, causal=False, scale=scale, heads_axis=2, **config)[0]  # type: ignore[no-any-return]

    return attention


def inputs(shape: Shape) -> list[jax.Array]:
    batch, heads, length, dim = shape
    keys = jax.random.split(jax.random.key(42), 5)
    return [jax.random.normal(key, (batch, length, heads, dim), jnp.bfloat16) for key in keys]


def program(attention: Attention, shape: Shape) -> Any:
    """Compiled: q, k, v, k2, v2 to the last result of a chain of calls."""

    attention = jax.jit(attention)

    def chain(q: jax.Array, *kv: jax.Array) -> jax.Array:
        def ten(_: Any, q: jax.Array) -> jax.Array:
            for call in range(CALLS):
                first = 2 * (call % 2)
                q = attention(q, kv[first], kv[first + 1])
            return q

        return lax.fori_loop(0, repeats(shape), ten, q)

    batch, heads, length, dim = shape
    one = jax.ShapeDtypeStruct((batch, length, heads, dim), jnp.bfloat16)
    return jax.jit(chain).lower(*[one] * 5).compile()


def attempt(contender: str, attention: Attention, shape: Shape) -> tuple[str, Shape, Any]:
    """A program, or why there is none."""
    try:
        return contender, shape, program(attention, shape)
    except _UNFIT as error:
        return contender, shape, f"{type(error).__name__}: {error}"[:300]


def milliseconds(compiled: Any, values: list[jax.Array], shape: Shape) -> float:
    start = time.perf_counter()
    compiled(*values).block_until_ready()
    return (time.perf_counter() - start) * 1e3 / (repeats(shape) * CALLS)


def refusal(compiled: Any, values: list[jax.Array], shape: Shape) -> str | None:
    """Why a program that compiles does not start: too much shared memory shows only here."""
    try:
        milliseconds(compiled, values, shape)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"[:300]
    return None


def refused(programs: Mapping[str, Any], shape: Shape) -> dict[str, str]:
    values = inputs(shape)
    reasons = {name: refusal(compiled, values, shape) for name, compiled in programs.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def timed(programs: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Median and samples of each contender's time for a call, taken in turn."""
    values = inputs(shape)
    samples: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(ROUNDS + 1):
        for name, compiled in programs.items():
            taken = milliseconds(compiled, values, shape)
            if turn:  # the first run warms up
                samples[name].append(taken)
    return {name: [statistics.median(taken), *taken] for name, taken in samples.items()}


def checks(attention: Attention, shape: Shape) -> list[Any]:
    """One call of the attention and one of XLA's, compiled."""
    batch, heads, length, dim = shape
    one = jax.ShapeDtypeStruct((batch, length, heads, dim), jnp.bfloat16)
    return [jax.jit(f).lower(one, one, one).compile() for f in (attention, peer("xla"))]


def error(compiled: list[Any], shape: Shape) -> float:
    got, want = (f(*inputs(shape)[:3]).astype(jnp.float32) for f in compiled)
    return float(jnp.linalg.norm(got - want) / jnp.linalg.norm(want))


def contenders(options: argparse.Namespace, shape: Shape) -> Iterator[tuple[str, Attention]]:
    yield from ((name, peer(name)) for name in options.peers)
    yield OURS, ours(None)
    candidates = json.loads(options.candidates.read_text()) if options.candidates else []
    for candidate in candidates:
        if shape[3] in candidate["dims"]:
            yield json.dumps(candidate["config"]), ours(candidate["config"])


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row a shape, as long as there is time."""
    deadline = time.monotonic() + options.minutes * 60
    with ThreadPoolExecutor(COMPILERS) as pool:
        jobs = [
            pool.submit(attempt, *found, shape)
            for shape in TUNED
            for found in contenders(options, shape)
        ]
        # All are compiled before the first is timed: XLA tries kernels of its own on the device.
        made = [job.result() for job in jobs]
    for shape in TUNED:
        if time.monotonic() > deadline:
            return
        programs = {name: found for name, where, found in made if where == shape}
        failed = {name: found for name, found in programs.items() if isinstance(found, str)}
        failed |= refused({n: p for n, p in programs.items() if n not in failed}, shape)
        times = timed({n: p for n, p in programs.items() if n not in failed}, shape)
        yield {"shape": shape, "ms": times, "failed": failed}


def check(found: list[dict[str, Any]]) -> None:
    """Adds the error of each row's public function against XLA."""
    with ThreadPoolExecutor(COMPILERS) as pool:
        jobs = [pool.submit(checks, ours(None), row["shape"]) for row in found]
        for row, job in zip(found, jobs, strict=True):
            row["error"] = error(job.result(), row["shape"])


def geomean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def figures(found: list[dict[str, Any]]) -> Iterator[Figure]:
    for name, target in (("xla", 1.2), ("cudnn", None)):
        both = [row["ms"] for row in found if {name, OURS} <= row["ms"].keys()]
        ratios = [times[name][0] / times[OURS][0] for times in both]
        if ratios:
            yield Figure(
                name=f"speed-over-{name}", value=geomean(ratios), unit="x", target=target,
                at_least=True,
                note=f"geometric mean over {len(ratios)} of {len(TUNED)} shapes, "
                f"least {min(ratios):.2f}, greatest {max(ratios):.2f}",
            )  # fmt: skip
    yield Figure(
        name="greatest-error", value=max(row["error"] for row in found), unit="", target=LIMIT,
        note="relative, in norm, against the XLA implementation",
    )  # fmt: skip


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no shape after these")
    parser.add_argument(
        "--peers", nargs="*", default=PEERS, choices=PEERS, help="compare with these"
    )
    parser.add_argument("--rows", type=Path, help="write each shape's row here as it is measured")
    parser.add_argument("--candidates", type=Path, help="time these configurations too")
    options = parser.parse_args()
    sys.path.insert(0, str(PACKAGE))
    found = []
    for row in rows(options):
        found.append(row)
        if options.rows is not None:
            with options.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    if not found:
        raise SystemExit("no time for a single shape: raise --minutes")
    check(found)
    device = jax.devices()[0].device_kind
    report = Report(
        title=f"Pallas attention on {device}",
        figures=list(figures(found)),
        environment=environment() | {"device": device, "rows": found},
    )
    return emit(report, options)


if __name__ == "__main__":
    raise SystemExit(main())
