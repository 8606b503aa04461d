"""flash-attn against PyTorch's attention, its FLASH and cuDNN backends each forced, in one run.

    python -m benchmarks.attention --json attention.json                   forward, causal, forward + backward
    python -m benchmarks.attention --package FOLDER --choices FILE ...     a source tree, configurations from a file

Device time is the median of 30 replays of a CUDA graph that holds 10 calls (after 25 calls and 5 replays), end to
end the median of 30 loops of 10 calls between events. Both include the allocation of the output. Inputs are the same
in every call and the L2 cache is not flushed. Shapes are (batch, heads, length, head dim), bf16, as many key heads.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Shape = tuple[int, int, int, int]

TUNED: tuple[Shape, ...] = (
    (2, 8, 128, 64), (4, 16, 512, 64), (8, 32, 1024, 128), (1, 16, 1024, 64), (2, 16, 1024, 64), (4, 16, 1024, 64),
    (8, 16, 1024, 128), (16, 16, 1024, 128), (32, 16, 1024, 128), (4, 16, 2048, 64), (4, 16, 4096, 64),
    (8, 16, 2048, 128), (8, 16, 4096, 128), (2, 16, 1024, 128), (8, 16, 1024, 64), (4, 16, 1024, 32),
    (8, 16, 1024, 256), (1, 24, 4608, 128), (2, 24, 4608, 64),
)  # fmt: skip
HELD_OUT: tuple[Shape, ...] = (
    (2, 12, 768, 64), (16, 16, 512, 64), (6, 16, 1024, 128), (8, 16, 1536, 128), (4, 16, 3072, 128),
    (1, 32, 2048, 128), (2, 16, 8192, 128), (8, 20, 1024, 128), (4, 16, 1024, 96), (12, 16, 256, 64),
)  # fmt: skip
PEERS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
TARGETS = {
    ("forward", "tuned", "flash"): 1.6,
    ("forward", "held out", "flash"): 1.55,
    ("forward", "tuned", "cudnn"): 1.1,
    ("causal", "tuned", "flash"): 1.3,
    ("causal", "tuned", "cudnn"): 1.1,
    ("forward + backward", "tuned", "flash"): 1.1,
}
CALLS = 10


def _timed(run: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def device_ms(call: Callable[[], object], replays: int = 30) -> list[float]:
    """Milliseconds a call, one sample a graph replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(25 if replays == 30 else 3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    samples = [_timed(graph.replay) / CALLS for _ in range(replays + 5)]
    return samples[5:]


def end_to_end_ms(call: Callable[[], object], repeats: int = 30) -> list[float]:
    """Milliseconds a call of a Python loop, one sample a loop."""

    def loop() -> None:
        for _ in range(CALLS):
            call()

    loop()
    return [_timed(loop) / CALLS for _ in range(repeats)]


def sdpa(backend: SDPBackend, causal: bool) -> Callable[..., torch.Tensor]:
    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return call


class Kernel:
    """The kernel under test, with a configuration for each shape where a choices file names one."""

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
            return lambda q, k, v: self.module.scaled_dot_product_attention(q, k, v, is_causal=causal)
        scale, right = 1 / math.sqrt(shape[3]), 0 if causal else None

        def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            views = (x.transpose(1, 2) for x in (q, k, v))
            return self.attention.attention_fwd(*views, scale, None, right, **config)[0].transpose(1, 2)

        return call


def inputs(shape: Shape, grad: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(42)
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad) for _ in range(3)]


def forward_rows(kernel: Kernel, causal: bool, end_to_end: bool) -> Iterator[dict[str, Any]]:
    for shape in TUNED + HELD_OUT:
        qkv = inputs(shape)
        calls = {name: sdpa(backend, causal) for name, backend in PEERS.items()}
        calls["ours"] = kernel.forward(shape, causal)
        expected = calls["cudnn"](*qkv)
        torch.testing.assert_close(calls["ours"](*qkv), expected, atol=5e-2, rtol=2e-2)
        row: dict[str, Any] = {"shape": shape, "device_ms": {}, "end_to_end_ms": {}}
        for name, call in calls.items():
            row["device_ms"][name] = device_ms(lambda call=call: call(*qkv))
            if end_to_end:
                row["end_to_end_ms"][name] = end_to_end_ms(lambda call=call: call(*qkv))
        yield row


def training_rows(kernel: Kernel) -> Iterator[dict[str, Any]]:
    for shape in TUNED:
        qkv = inputs(shape, grad=True)
        upstream = torch.randn_like(qkv[0])
        calls = {name: sdpa(backend, False) for name, backend in PEERS.items()}
        calls["ours"] = lambda q, k, v: kernel.module.scaled_dot_product_attention(q, k, v)
        row: dict[str, Any] = {"shape": shape, "device_ms": {}}
        for name, call in calls.items():
            row["device_ms"][name] = device_ms(
                lambda call=call: torch.autograd.grad(call(*qkv), qkv, upstream), replays=7
            )
        yield row


def geomean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def summarise(title: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prints the table; returns the figures."""
    operations = 2 if title == "causal" else 4
    print(f"\n{title}: median device ms\n{'B,H,S,D':>16} {'FLASH':>8} {'cuDNN':>8} {'ours':>8} x FLASH x cuDNN TFLOP/s")
    ratios: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        shape = tuple(row["shape"])
        ms = {name: statistics.median(samples) for name, samples in row["device_ms"].items()}
        batch, heads, length, dim = shape
        rate = operations * batch * heads * length**2 * dim / ms["ours"] / 1e9
        print(
            f"{','.join(map(str, shape)):>16} {ms['flash']:8.4f} {ms['cudnn']:8.4f} {ms['ours']:8.4f}"
            f" {ms['flash'] / ms['ours']:7.2f} {ms['cudnn'] / ms['ours']:7.2f}"
            + (f" {rate:7.0f}" if "+" not in title else "")
        )
        group = "tuned" if shape in TUNED else "held out"
        for peer in PEERS:
            ratios.setdefault((group, peer), []).append(ms[peer] / ms["ours"])
    figures = []
    for (group, peer), values in ratios.items():
        target = TARGETS.get((title, group, peer))
        value = round(geomean(values), 3)
        figures.append(
            {
                "name": f"attention {title}, {group} shapes, geomean speed-up",
                "value": value,
                "unit": "x",
                "target": target,
                "met": None if target is None else value >= target,
                "peer": f"SDPA {peer}",
                "note": f"faster on {sum(v > 1 for v in values)} of {len(values)}, least {min(values):.2f}",
            }
        )
        print(f"{title}, {group}, against {peer}: geomean {value} (target {target}), {figures[-1]['note']}")
    return figures


def environment() -> dict[str, str]:
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=Path, required=True, help="folder of the built kernel")
    parser.add_argument("--choices", type=Path, help="JSON list of {shape, causal, config}")
    parser.add_argument("--json", type=Path, help="write figures and raw samples here")
    parser.add_argument("--skip-end-to-end", action="store_true")
    parser.add_argument("--skip-training", action="store_true")
    arguments = parser.parse_args()
    kernel = Kernel(arguments.package, arguments.choices)
    figures: list[dict[str, Any]] = []
    raw: dict[str, Any] = {}
    for title, causal in (("forward", False), ("causal", True)):
        raw[title] = list(forward_rows(kernel, causal, not arguments.skip_end_to_end and not causal))
        figures += summarise(title, raw[title])
    if not arguments.skip_training:
        raw["forward + backward"] = list(training_rows(kernel))
        figures += summarise("forward + backward", raw["forward + backward"])
    if arguments.json:
        report = {"figures": figures, "environment": environment(), "command": " ".join(sys.argv), "raw": raw}
        arguments.json.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
