"""flash-attn against PyTorch's attention, its FLASH and cuDNN backends each forced, in one run.

    python -m benchmarks.attention [--only TABLE ...] [--json FILE] [--rehearse]

The kernel is built, published on an embedded Hub and loaded from it with `get_kernel`: what runs is
what its bundled trees choose. Device time is the median of 30 replays of a CUDA graph that holds 10
calls (after 25 calls and 5 replays; a quarter of it where a call takes over 2 ms), end to end the
median of 30 loops of 10 calls between events; the contenders run in turn. Both include the
allocation of the output. Inputs are the same in every call and the L2 cache is not flushed. In bf16
where the table's name does not say otherwise. `--rehearse` runs tiny shapes on the CPU, to see that
all of it works.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from benchmarks.attention_first_call import first_calls
from benchmarks.attention_rows import Bench, Row
from benchmarks.attention_shapes import (
    DECODE,
    GRID,
    HELD_OUT,
    SMALL,
    SMALL_DECODE,
    TARGETS,
    TUNED,
)
from benchmarks.attention_subject import REPO, published

PEERS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
REHEARSED = {"flash": SDPBackend.MATH, "cudnn": SDPBackend.MATH}
LARGE_MS = 0.1  # shapes on which cuDNN takes longer must not fall below its 0.95


def geomean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def medians(samples: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in samples.items()}


def figure(name: str, value: float, unit: str, **more: Any) -> Row:
    target = more.pop("target", None)
    met = None if target is None else value >= target
    row = {"name": f"attention {name}", "value": round(value, 3), "unit": unit, "target": target}
    return row | {"met": met, "peer": more.pop("peer", None), "note": more.pop("note", "")}


def speed_ups(title: str, rows: list[Row], key: str = "device_ms") -> list[Row]:
    """Prints the table of one comparison; returns its figures."""
    print(f"\n{title}: median {key}")
    print(f"{'B,H,S,D':>16} {'FLASH':>8} {'cuDNN':>8} {'ours':>8} xFLASH xcuDNN TFLOP/s")
    groups: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        batch, heads, length, dim = shape = tuple(row["shape"])
        ms = dict.fromkeys((*PEERS, "ours"), math.nan) | medians(row[key])
        rate = (2 if row["causal"] else 4) * batch * heads * length**2 * dim / ms["ours"] / 1e9
        if "backward" in title:
            rate *= 3.5
        print(
            f"{','.join(map(str, shape)):>16} {ms['flash']:8.4f} {ms['cudnn']:8.4f}"
            f" {ms['ours']:8.4f} {ms['flash'] / ms['ours']:6.2f} {ms['cudnn'] / ms['ours']:6.2f}"
            f" {rate:7.0f}"
        )
        for name, why in row.get("failed", {}).items():
            print(f"{'':>16} {name} was not captured: {why}")
        group = "tuned" if shape in TUNED else "held out" if shape in HELD_OUT else "grid"
        groups.setdefault(group, []).append(ms)
    figures = []
    for group, times in groups.items():
        for peer in PEERS:
            both = [ms for ms in times if not math.isnan(ms[peer] + ms["ours"])]
            ratios = [ms[peer] / ms["ours"] for ms in both]
            if not ratios:
                continue
            large = [ms[peer] / ms["ours"] for ms in both if ms[peer] > LARGE_MS]
            missing = len(times) - len(both)
            note = f"faster on {sum(r > 1 for r in ratios)} of {len(ratios)}, "
            note += f"least {min(ratios):.2f}, above {LARGE_MS} ms {min(large, default=0):.2f}"
            note += f", {missing} not measured" if missing else ""
            target = TARGETS.get((title, group, peer))
            found = figure(f"{title}, {group} shapes, geomean speed-up", geomean(ratios), "x",
                           target=target, peer=f"SDPA {peer}", note=note)  # fmt: skip
            print(f"{title}, {group}, against {peer}: {found['value']} (target {target}), {note}")
            figures.append(found)
    return figures


def ceilings(rows: list[Row]) -> list[Row]:
    product, copy = rows
    rate = product["operations"] / medians(product["device_ms"])["product"] / 1e9
    bandwidth = copy["bytes"] / medians(copy["device_ms"])["copy"] / 1e9
    print(f"\nbf16 product of {8192} rows: {rate:.0f} TFLOP/s; copy: {bandwidth:.2f} TB/s")
    return [
        figure("ceiling: bf16 matrix product", rate, "TFLOP/s"),
        figure("ceiling: copy, bytes read and written", bandwidth, "TB/s"),
    ]


def grid(rows: list[Row], peak: float | None) -> list[Row]:
    print("\ngrid, hidden 2048: TFLOP/s (share of the measured bf16 product)")
    figures = []
    for row in rows:
        batch, heads, length, dim = row["shape"]
        ms = medians(row["device_ms"])
        work = (2 if row["causal"] else 4) * batch * heads * length**2 * dim / 1e9
        rates = {name: work / value for name, value in ms.items()}
        share = f" ({rates['ours'] / peak:.0%})" if peak else ""
        kind = "causal" if row["causal"] else "full"
        print(
            f"{kind:>7} D {dim:3} {batch:2} x {length:5}: ours {rates['ours']:4.0f}{share},"
            f" cuDNN {rates['cudnn']:4.0f}, FLASH {rates['flash']:4.0f}"
        )
        figures.append((kind, dim, rates["ours"]))
    return [
        figure(f"grid, {kind}, head dim {dim}, most", max(r for k, d, r in figures if (k, d) == at),
               "TFLOP/s", note=f"bf16 product {peak:.0f}" if peak else "")
        for at in dict.fromkeys((k, d) for k, d, _ in figures)
        for kind, dim in [at]
    ]  # fmt: skip


def decoding(rows: list[Row], bandwidth: float | None) -> list[Row]:
    print("\ndecoding, 32 heads on 4, D 128: median device ms")
    print(" batch    keys     ours  best of SDPA   TB/s  share of copy")
    ratios, rates = [], []
    for row in rows:
        ms = medians(row["device_ms"])
        ours, best = ms.pop("ours"), min(ms.values(), default=math.nan)
        rates.append(row["bytes"] / ours / 1e9)
        ratios.append(best / ours)
        share = f"{rates[-1] / bandwidth:10.0%}" if bandwidth else ""
        print(f"{row['batch']:6} {row['keys']:7} {ours:8.4f} {best:13.4f} {rates[-1]:6.2f} {share}")
    note = f"faster on {sum(r > 1 for r in ratios)} of {len(ratios)}, least {min(ratios):.2f}"
    return [
        figure("decoding, geomean speed-up", geomean(ratios), "x", peer="SDPA's best", note=note),
        figure("decoding, most bandwidth", max(rates), "TB/s", note="keys and values read once"),
    ]


def first_call(samples: dict[str, list[Row]]) -> list[Row]:
    figures = []
    for state, runs in samples.items():
        total = statistics.median(run["total"] for run in runs)
        load = statistics.median(run["load"] for run in runs)
        print(f"first call, {state} caches: {total:.2f} s, of which loading {load:.2f} s")
        note = f"from get_kernel to the result, loading {load:.2f} s of it"
        figures.append(figure(f"first call, {state} caches", total, "s", note=note))
    return figures


def environment(device: str) -> dict[str, str]:
    import triton

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
        "python": platform.python_version(),
    }


TABLES = (
    "ceilings", "forward", "causal", "forward + backward", "decoding", "grid", "first call",
    "forward + backward, causal", "forward, float16",
)  # fmt: skip


class Run:
    """One run of some tables, with what is known of the card so far."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.small = bench.device == "cpu"
        self.peak: float | None = None
        self.bandwidth: float | None = None

    def measure(self, table: str) -> tuple[Any, list[Row]]:
        """(rows with raw samples, figures) of one table."""
        bench, shapes = self.bench, SMALL if self.small else TUNED + HELD_OUT
        if table == "ceilings":
            rows = list(bench.ceilings())
            figures = ceilings(rows)
            self.peak, self.bandwidth = figures[0]["value"], figures[1]["value"]
            return rows, figures
        if table == "decoding":
            rows = list(bench.decoding(SMALL_DECODE if self.small else DECODE))
            return rows, decoding(rows, self.bandwidth)
        if table == "grid":
            grid_shapes = SMALL if self.small else GRID
            rows = [r for c in (False, True) for r in bench.forward(grid_shapes, c, False)]
            return rows, grid(rows, self.peak)
        if table == "first call":
            samples = first_calls(REPO, bench.device, 1 if self.small else 2)
            return samples, first_call(samples)
        if "backward" in table:
            rows = list(bench.training(SMALL if self.small else TUNED, "causal" in table))
            return rows, speed_ups(table, rows)
        if table == "forward, float16":
            rows = list(bench.forward(SMALL if self.small else TUNED, False, False, torch.float16))
            return rows, speed_ups(table, rows)
        rows = list(bench.forward(shapes, table == "causal", True))
        return rows, [
            *speed_ups(table, rows),
            *speed_ups(f"{table}, end to end", rows, "end_to_end_ms"),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=TABLES, default=TABLES, metavar="TABLE")
    parser.add_argument("--json", type=Path, help="write figures and raw samples here")
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes on the CPU")
    arguments = parser.parse_args()
    device = "cpu" if arguments.rehearse else "cuda"
    if arguments.rehearse:
        from kernelhub import interpreter

        interpreter.enable()
    with published():
        from kernelhub import get_kernel

        # On the CPU the interpreter runs the variant for CUDA, which must be asked for.
        backend = "cuda" if arguments.rehearse else None
        kernel = get_kernel(REPO, version=1, backend=backend, trust_remote_code=True)
        peers = REHEARSED if arguments.rehearse else PEERS
        run = Run(Bench(kernel=kernel, device=device, peers=peers))
        command = " ".join(["python -m benchmarks.attention", *sys.argv[1:]])
        report: Row = {"figures": [], "environment": environment(device), "command": command}
        report["raw"] = {}
        for table in arguments.only:
            report["raw"][table], figures = run.measure(table)
            report["figures"] += figures
            sys.stdout.flush()
            if arguments.json:
                arguments.json.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
