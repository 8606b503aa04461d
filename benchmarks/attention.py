"""flash-attn against PyTorch's attention, its FLASH and cuDNN backends each forced, in one run.

    python -m benchmarks.attention --package FOLDER [--choices FILE] [--only TABLE ...]

Device time is the median of 30 replays of a CUDA graph that holds 10 calls (after 25 calls and 5
replays), end to end the median of 30 loops of 10 calls between events; the contenders run in turn.
Both include the allocation of the output. Inputs are the same in every call and the L2 cache is not
flushed. All in bf16.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.attention_shapes import DECODE, GRID, HELD_OUT, TARGETS, TUNED, Shape
from benchmarks.gpu_timing import device_ms, end_to_end_ms

PEERS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
Row = dict[str, Any]


def sdpa(backend: SDPBackend, *qkv: torch.Tensor, **options: Any) -> torch.Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*qkv, **options)


class Kernel:
    """The kernel under test, with a configuration for each shape that a choices file names."""

    def __init__(self, package: Path, choices: Path | None) -> None:
        name = "flash_attn_benchmarked"
        spec = importlib.util.spec_from_file_location(name, package / "__init__.py")
        if spec is None or spec.loader is None:
            raise SystemExit(f"no package at {package}")
        self.module = importlib.util.module_from_spec(spec)
        sys.modules[name] = self.module
        spec.loader.exec_module(self.module)
        self.attention = importlib.import_module(f"{name}.attention")
        table = json.loads(choices.read_text()) if choices else []
        self.choices = {(tuple(row["shape"]), row["causal"]): row["config"] for row in table}

    def forward(self, shape: Shape, causal: bool) -> Callable[..., torch.Tensor]:
        config = self.choices.get((shape, causal))
        if config is None:
            return partial(self.module.scaled_dot_product_attention, is_causal=causal)
        scale, right = 1 / math.sqrt(shape[3]), 0 if causal else None

        def call(*qkv: torch.Tensor) -> torch.Tensor:
            views = (x.transpose(1, 2) for x in qkv)
            return self.attention.attention_fwd(*views, scale, None, right, **config)[0].transpose(
                1, 2
            )

        return call


def inputs(*shapes: Shape, grad: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(42)
    return [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)
        for shape in shapes
    ]


def forward_rows(
    kernel: Kernel, shapes: Iterable[Shape], causal: bool, end_to_end: bool
) -> Iterator[Row]:
    for shape in shapes:
        qkv = inputs(shape, shape, shape)
        calls: dict[str, Callable[[], torch.Tensor]] = {
            name: partial(sdpa, backend, *qkv, is_causal=causal) for name, backend in PEERS.items()
        }
        calls["ours"] = partial(kernel.forward(shape, causal), *qkv)
        torch.testing.assert_close(calls["ours"](), calls["cudnn"](), atol=5e-2, rtol=2e-2)
        row: Row = {"shape": shape, "causal": causal, "device_ms": device_ms(calls)}
        if end_to_end:
            row["end_to_end_ms"] = end_to_end_ms(calls)
        yield row


def training_rows(kernel: Kernel) -> Iterator[Row]:
    for shape in TUNED:
        qkv = inputs(shape, shape, shape, grad=True)
        upstream = torch.randn_like(qkv[0])

        def step(
            attend: Callable[..., torch.Tensor], qkv: list = qkv, upstream: torch.Tensor = upstream
        ) -> object:
            return torch.autograd.grad(attend(*qkv), qkv, upstream)

        calls = {name: partial(step, partial(sdpa, backend)) for name, backend in PEERS.items()}
        calls["ours"] = partial(step, kernel.module.scaled_dot_product_attention)
        yield {"shape": shape, "device_ms": device_ms(calls, replays=10, discard=2)}


def decode_rows(kernel: Kernel) -> Iterator[Row]:
    for batch, keys in DECODE:
        q, k, v = inputs((batch, 32, 1, 128), (batch, 4, keys, 128), (batch, 4, keys, 128))
        backends = {**PEERS, "efficient": SDPBackend.EFFICIENT_ATTENTION}
        calls = {
            "ours": partial(kernel.module.scaled_dot_product_attention, q, k, v, enable_gqa=True)
        }
        expected = None
        for name, backend in backends.items():
            call = partial(sdpa, backend, q, k, v, enable_gqa=True)
            try:
                expected = call()
            except RuntimeError:  # this backend does not take grouped heads here
                continue
            calls[name] = call
        if expected is not None:
            torch.testing.assert_close(calls["ours"](), expected, atol=5e-2, rtol=2e-2)
        yield {
            "batch": batch,
            "keys": keys,
            "bytes": 2 * k.numel() * 2,
            "device_ms": device_ms(calls),
        }


def geomean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def print_speed_ups(title: str, rows: list[Row], key: str = "device_ms") -> list[Row]:
    """The table of one comparison; returns its figures."""
    print(
        f"\n{title}: median {key}\n{'B,H,S,D':>16} {'FLASH':>8} {'cuDNN':>8} {'ours':>8}"
        " xFLASH xcuDNN TFLOP/s"
    )
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        batch, heads, length, dim = shape = tuple(row["shape"])
        ms = {name: statistics.median(samples) for name, samples in row[key].items()}
        rate = (2 if row.get("causal") else 4) * batch * heads * length**2 * dim / ms["ours"] / 1e9
        print(
            f"{','.join(map(str, shape)):>16} {ms['flash']:8.4f} {ms['cudnn']:8.4f}"
            f" {ms['ours']:8.4f}"
            f" {ms['flash'] / ms['ours']:6.2f} {ms['cudnn'] / ms['ours']:6.2f}"
            + (f" {rate:7.0f}" if "causal" in row else "")
        )
        group = "tuned" if shape in TUNED else "held out" if shape in HELD_OUT else "grid"
        for peer in PEERS:
            ratios.setdefault((group, peer), []).append(ms[peer] / ms["ours"])
    return [figure(title, group, peer, values) for (group, peer), values in ratios.items()]


def figure(title: str, group: str, peer: str, ratios: list[float]) -> Row:
    value, target = round(geomean(ratios), 3), TARGETS.get((title, group, peer))
    note = (
        f"faster on {sum(ratio > 1 for ratio in ratios)} of {len(ratios)}, least {min(ratios):.2f}"
    )
    print(f"{title}, {group}, against {peer}: geomean {value} (target {target}), {note}")
    return {
        "name": f"attention {title}, {group} shapes, geomean speed-up",
        "value": value,
        "unit": "x",
        "target": target,
        "met": None if target is None else value >= target,
        "peer": f"SDPA {peer}",
        "note": note,
    }


def print_decoding(rows: list[Row]) -> list[Row]:
    print(
        "\ndecoding, 32 heads on 4, D 128: median device ms"
        "\n batch    keys     ours  best of SDPA   TB/s"
    )
    ratios, rates = [], []
    for row in rows:
        ms = {name: statistics.median(samples) for name, samples in row["device_ms"].items()}
        ours, best = ms.pop("ours"), min(ms.values(), default=math.nan)
        rates.append(row["bytes"] / ours / 1e9)
        ratios.append(best / ours)
        print(f"{row['batch']:6} {row['keys']:7} {ours:8.4f} {best:13.4f} {rates[-1]:6.2f}")
    figures = [figure("decoding", "all", "best backend", ratios)]
    bandwidth = {
        "name": "attention decoding, most bandwidth",
        "value": round(max(rates), 2),
        "unit": "TB/s",
        "target": None,
        "met": None,
        "peer": None,
        "note": "keys and values read once",
    }
    return [*figures, bandwidth]


def environment() -> dict[str, str]:
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
        "python": platform.python_version(),
    }


TABLES = ("forward", "causal", "forward + backward", "decoding", "grid")


def measure(table: str, kernel: Kernel, end_to_end: bool) -> tuple[list[Row], list[Row]]:
    """(rows with raw samples, figures) of one table."""
    if table == "decoding":
        rows = list(decode_rows(kernel))
        return rows, print_decoding(rows)
    if table == "forward + backward":
        rows = list(training_rows(kernel))
    elif table == "grid":
        rows = [
            row for causal in (False, True) for row in forward_rows(kernel, GRID, causal, False)
        ]
    else:
        rows = list(forward_rows(kernel, TUNED + HELD_OUT, table == "causal", end_to_end))
    figures = print_speed_ups(table, rows)
    if rows and "end_to_end_ms" in rows[0]:
        figures += print_speed_ups(f"{table}, end to end", rows, "end_to_end_ms")
    return rows, figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, required=True, help="folder of the built kernel")
    parser.add_argument("--choices", type=Path, help="JSON list of {shape, causal, config}")
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--end-to-end", action="store_true")
    parser.add_argument("--json", type=Path, help="write figures and raw samples here")
    arguments = parser.parse_args()
    kernel = Kernel(arguments.package, arguments.choices)
    report: Row = {
        "figures": [],
        "environment": environment(),
        "command": " ".join(sys.argv),
        "raw": {},
    }
    for table in arguments.only:
        report["raw"][table], figures = measure(table, kernel, arguments.end_to_end)
        report["figures"] += figures
        if arguments.json:
            arguments.json.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
