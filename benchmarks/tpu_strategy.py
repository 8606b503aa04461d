"""Strategies of attention on TPUs: what the compiler admits, what the shipped trees pick.

python -m benchmarks.tpu_strategy [--chip 7x ...] [--answers FOLDER] [--tuned LOG ...] [--json]

Needs libtpu and no TPU. For each chip, and each length and head dim of `subjects.tpu_attention`,
the compiler is asked about the configurations of the shipped tree. The tree's pick is what dispatch
runs: the first of the leaf that the kernel does not refuse while it is traced. It disagrees where
the compiler refuses it, or where another strategy is modelled faster by more than 5 %.

Published times of one core of a TPU7x are compared with the model: attention with the compiler's
schedule of this repository's kernel and by the units' peaks alone, all others by the peaks.

`--answers` keeps what the compiler says, `--tuned` reads the time that `kernel-builder tune --json`
took.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._report import PACKAGES, Figure, Report, arguments, emit, environment
from kernel_builder.tuning.evaluate import ranker
from kernel_builder.tuning.runner import Task
from kernel_builder.tuning.site import Site
from kernel_builder.tuning.tpu.model import Units, estimate
from kernel_builder.tuning.tpu.work import Product, Work
from kernelhub.formats.tpu import CHIPS, chip_of_name
from kernelhub.formats.tree import Tree, parse

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "examples/flash-attn/jax-ext"
TREES = PACKAGE / "flash_attn/tuning"
KERNEL = "tpu_forward.attention_tpu"
SLOWER = 1.05  # a pick of another strategy than the best may be slower by this
TARGET_SECONDS = 600.0
# (batch, heads, length, dim) of the published attention: TFLOP/s by strategy; None: out of memory.
ATTENTION = {8192: {"stream": 653.0, "resident": 892.0}, 32768: {"stream": 695.0, "resident": None}}


@dataclass(frozen=True)
class Row:
    """One length and head dim on one chip."""

    chip: str
    case: str
    length: int
    dim: int
    compiler: str  # the strategy that is best by the compiler and the model, or "neither"
    picked: str  # the tree's, or "neither"
    agrees: bool
    tflops: dict[str, float | None]  # by strategy: the best configuration that compiles


class NoMarks:
    def begin(self, config: Any) -> None: ...

    def end(self, config: Any) -> None: ...


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--chip", action="append", help="only these; may be repeated")
    parser.add_argument("--answers", type=Path, help="keep the compiler's answers here")
    parser.add_argument("--tuned", type=Path, action="append", default=[], help="a tune's log")
    parser.add_argument("--rows-of", help="print the rows of one chip as JSON and nothing else")
    parser.add_argument("--rows", type=Path, action="append", help="a file of such rows to report")
    options = parser.parse_args()
    if options.rows_of:
        print(json.dumps([asdict(row) for row in rows_of(options.rows_of, options.answers)]))
        return 0
    rows: list[Row] = []
    for path in options.rows or ():
        rows += [Row(**row) for row in json.loads(path.read_text())]
    names = options.chip or [chip.name for chip in CHIPS if not options.rows]
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda name: in_process(name, options.answers), names):
            rows += found
            if not options.json:
                print(table(found), file=sys.stderr)
    report = Report(
        title="Attention on TPUs, compiled and modelled",
        figures=[*disagreements(rows), *published(rows), *tuning(options.tuned)],
        environment={
            **environment((*PACKAGES, "libtpu")),
            "method": "compiled-and-modelled, nothing was timed on a TPU",
            "rows": [asdict(row) for row in rows],
        },
    )
    return emit(report, options)


def in_process(chip: str, answers: Path | None) -> list[Row]:
    """The rows of a chip, from a process of its own: libtpu may end it."""
    more = [] if answers is None else ["--answers", str(answers)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tpu_strategy", "--rows-of", chip, *more],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def rows_of(name: str, answers: Path | None) -> list[Row]:
    """Ask the compiler about a chip's tree, on the whole grid."""
    from kernel_builder.tuning.runners.tpu_compiler import TpuCompilerCore

    chip = chip_of_name(name)
    assert chip is not None
    folder = Path(tempfile.mkdtemp()) if answers is None else answers / chip.name
    folder.mkdir(parents=True, exist_ok=True)
    site = Site(
        paths=(str(PACKAGE),),
        package="flash_attn",
        workloads=str(ROOT / "benchmarks/subjects/tpu_attention.py"),
        framework="jax",
    )
    tree = parse((TREES / f"{KERNEL}.{chip.facts.slug}.py").read_text(), chip.facts.slug)
    core = TpuCompilerCore(site=site.to_json(), chip=chip.name, folder=str(folder))
    found = core.collect(lambda _: None)
    return [row(core, tree, chip.name, item) for item in found]


def row(core: Any, tree: Tree, chip: str, found: Any) -> Row:
    """The compiler's answers for one launch against the tree's pick."""
    task = Task(kernel=found.kernel, case=found.case, point=found.point, features=found.features)
    marks, milliseconds, passed_over = NoMarks(), {}, set()
    for outcome in core.check(task, tree.configs, None, marks, serial=False):
        key = json.dumps(outcome.config, sort_keys=True)
        if outcome.reason is not None:
            if outcome.pruned:
                passed_over.add(key)
            continue
        (timed,) = core.measure(task, [outcome.config], 1, marks)
        milliseconds[key] = timed.samples[0]
    shape = tuple(found.features[f"q_dim{i}"] for i in range(4))
    flops = 4 * shape[0] * shape[1] * shape[2] ** 2 * shape[3]
    best: dict[str, float | None] = {"stream": None, "resident": None}
    for key, ms in milliseconds.items():
        strategy = json.loads(key)["strategy"]
        best[strategy] = min(ms, best[strategy] or ms)
    ranking = [
        json.dumps(c, sort_keys=True) for c in ranker(tree.root, tree.configs)(task.features)
    ]
    # The kernel itself refuses while it is traced what cannot fit, and dispatch takes the next.
    runs = [key for key in ranking if key not in passed_over]
    pick = runs[0] if runs else None
    fastest = min((ms for ms in best.values() if ms), default=None)
    compiler = next((s for s, ms in best.items() if ms == fastest and ms), "neither")
    picked = json.loads(pick)["strategy"] if pick else "neither"
    others = [ms for s, ms in best.items() if s != picked and ms is not None]
    agrees = compiler == "neither" if pick is None else pick in milliseconds
    agrees = agrees and all(milliseconds[pick] <= SLOWER * ms for ms in others if pick)
    return Row(
        chip=chip, case=found.case, length=shape[2], dim=shape[3], compiler=compiler,
        picked=picked, agrees=bool(agrees),
        tflops={s: None if ms is None else flops / ms / 1e9 for s, ms in best.items()},
    )  # fmt: skip


def table(rows: list[Row]) -> str:
    """Strategies by length and head dim: the compiler's, and the tree's where it differs."""
    rows = [row for row in rows if "published" not in row.case]
    dims = sorted({row.dim for row in rows})
    lines = [f"{rows[0].chip}: S by D " + "  ".join(f"{dim:>20}" for dim in dims)]
    for length in sorted({row.length for row in rows}):
        cells = []
        for dim in dims:
            (row,) = [r for r in rows if (r.length, r.dim) == (length, dim)]
            cells.append(row.compiler if row.agrees else f"{row.compiler} / {row.picked}!")
        lines.append(f"{length:>13} " + "  ".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


def disagreements(rows: list[Row]) -> list[Figure]:
    """How often a tree picks what the compiler does not admit or another strategy beats."""
    wrong = [row for row in rows if not row.agrees]
    figures = [
        Figure(
            name="disagreements", value=len(wrong), unit="launches", target=0,
            note=f"of {len(rows)} on {len({row.chip for row in rows})} chips; "
            + "; ".join(f"{row.chip} S={row.length} D={row.dim}" for row in wrong[:12]),
        )
    ]  # fmt: skip
    for chip in sorted({row.chip for row in rows}):
        mine = [row for row in rows if row.chip == chip]
        for dim in sorted({row.dim for row in mine}):
            held = [r.length for r in mine if r.dim == dim and r.tflops["resident"]]
            figures.append(
                Figure(
                    name=f"longest-resident/{chip}/D{dim}", value=max(held, default=0), unit="keys",
                    note="of the grid, by the compiler",
                )
            )  # fmt: skip
    return figures


def published(rows: list[Row]) -> list[Figure]:
    """The model against what was published for one core of a TPU7x."""
    figures = []
    units = Units.of(next(c for c in CHIPS if c.name == "7x"))
    for length, rates in ATTENTION.items():
        found = [r for r in rows if r.chip == "7x" and r.case.endswith(f"published S={length}")]
        for strategy, rate in rates.items():
            name = f"attention-{strategy}-S{length}/schedule"
            figures += [_error(name, r, strategy, rate) for r in found]
    for name, (work, ms) in PUBLISHED.items():
        modelled = estimate(work, units).seconds * 1e3
        figures.append(
            Figure(
                name=f"published/{name}/peaks", value=100 * (modelled / ms - 1), unit="%",
                note=f"time modelled {modelled:.3f} ms, published {ms} ms",
            )
        )  # fmt: skip
    return figures


def _error(name: str, row: Row, strategy: str, rate: float | None) -> Figure:
    mine = row.tflops[strategy]
    if rate is None or mine is None:
        return Figure(
            name=f"published/{name}", value=float((rate is None) == (mine is None)), unit="agrees",
            target=1, at_least=True, note=f"modelled {mine}, published {rate} TFLOP/s",
        )  # fmt: skip
    return Figure(
        name=f"published/{name}", value=100 * (mine / rate - 1), unit="%",
        note=f"TFLOP/s modelled {mine:.0f}, published {rate:.0f} (another kernel)",
    )  # fmt: skip


def _attention(length: int, resident: bool) -> Work:
    """Published attention by structure: blocks of 1024 rows, K and V whole or in such blocks."""
    heads, dim, block = 256, 256, 1024
    rows = blocks = length // block
    steps = heads * rows * blocks
    turns = steps
    moved = heads * length * dim * 2
    kv = 2 * heads * length * dim * 2 if resident else steps * 2 * block * dim * 2
    return Work(
        products=(Product(block, dim, block, steps), Product(block, block, dim, steps)),
        vector_ops=steps * block * (5.5 * block + 3 * dim), exponentials=steps * block * block,
        hbm_bytes=2 * moved + kv, programs=heads * rows, turns=turns,
        stalls=1 if resident else heads * rows, stall_bytes=2 * block * dim * 2,
    )  # fmt: skip


def _moved(elements: float, itemsize: int = 4) -> Work:
    return Work(hbm_bytes=elements * itemsize)


def _product(m: int, k: int, n: int, count: int = 1, moved: float = 0.0) -> Work:
    bytes_ = 2.0 * count * (m * k + k * n + m * n) + moved
    return Work(products=(Product(m, k, n, count),), hbm_bytes=bytes_)


# Helion's times on one core of a TPU7x, ms; the kernels' own work as their names say, each array
# read or written once. Element types were not published: bfloat16 for products and activations and
# where float32 could not have been moved in the time, else float32.
PUBLISHED: dict[str, tuple[Work, float]] = {
    "attention-resident-S8192": (_attention(8192, True), 1.759e13 / 892e12 * 1e3),
    "attention-stream-S8192": (_attention(8192, False), 1.759e13 / 653e12 * 1e3),
    "attention-stream-S32768": (_attention(32768, False), 2.815e14 / 695e12 * 1e3),
    "softmax-65536x2560": (_moved(2 * 65536 * 2560), 0.477),
    "batch-softmax-64x2048x4096": (_moved(2 * 64 * 2048 * 4096, 2), 0.982),
    "softmax-two-pass-8192x8192": (_moved(3 * 8192 * 8192), 0.334),
    "bmm-64x2048": (_product(2048, 2048, 2048, 64), 1.527),
    "rms-norm-backward-8192x8192": (_moved(3 * 8192 * 8192), 0.661),
    "epilogue-subtiling-4096": (_product(4096, 4096, 4096), 0.417),
    "matmul-layernorm-4096": (_product(4096, 4096, 4096), 0.523),
    "welford-524288x512": (_moved(2 * 524288 * 512), 1.316),
    "swiglu-16x16384x4096": (_moved(3 * 16 * 16384 * 4096, 2), 2.295),
    "matmul-8192": (_product(8192, 8192, 8192), 1.597),
    "geglu-16x8192x8192": (_moved(3 * 16 * 8192 * 8192, 2), 2.424),
    "broadcast-matmul-64x2048": (_product(2048, 2048, 2048, 64), 1.806),
    "layer-norm-16384x16384": (_moved(2 * 16384 * 16384), 1.126),
    "rms-norm-8192x8192": (_moved(2 * 8192 * 8192), 0.617),
}


def tuning(logs: list[Path]) -> list[Figure]:
    """How long tuning took, from its own account."""
    figures = []
    for path in logs:
        events = [json.loads(line) for line in path.read_text().splitlines() if line[:1] == "{"]
        (effort,) = [event for event in events if event["event"] == "effort"]
        (measured,) = [event for event in events if event["event"] == "measured"]
        figures.append(
            Figure(
                name=f"tuning-time/{measured['device']}", value=effort["total"], unit="s",
                target=TARGET_SECONDS,
                note=f"{measured['points']} launches, {effort['compiled_here']:.0f} compilations, "
                "two cores that others used too",
            )
        )  # fmt: skip
    return figures


if __name__ == "__main__":
    sys.exit(main())
