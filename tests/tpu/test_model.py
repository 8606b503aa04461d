"""The compiler's schedule, the model of the time, and what the compiler is asked about."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.tpu.finalists import finalists
from kernel_builder.tuning.tpu.programs import Answer, Programs
from kernel_builder.tuning.tpu.schedule import Loop, Schedule, read_schedule
from kernel_builder.tuning.tpu.work import Product, Tile, Work
from kernelhub.formats.tpu import CHIPS

MIB = 1 << 20
DUMP = """\
= control target key start
LB: loop body
     0   :  { %s9_s0 = inlined_call_operand.hbm } /* entry bundle: %f.1 = custom-call(%q.1, %k.1) */
   0x1   :  { %8 = vsyncpa [#allocation3], 0 }
   0x2 LB: > { %s1 = smov 0 }
   0x3   : > { %v1 = vld [vmem:%s1] }
   0x4 LB: >> { %v2 = vmatmul.mubr.bf16.gmra.mrb %v1  ;;  %v3 = vmatmul.mubr.bf16.gmra.mrb %v1 }
   0x5   : >> { %v4 = vmatprep.subr.bf16.mxu0 %v2 }
   0x6 PF: > { vst %v4 }
   0x7 LB: >> { %v5 = vadd %v4 }
   0x8   :  { exit }
"""


def units(chip: str):
    pytest.importorskip("jax")
    from kernel_builder.tuning.tpu.model import Units

    return Units.of(next(c for c in CHIPS if c.name == chip))


def test_a_dump_is_read_loop_by_loop() -> None:
    schedule = read_schedule(DUMP.splitlines())
    assert schedule == Schedule((Loop(0, 3, 0), Loop(1, 3, 0), Loop(2, 2, 2), Loop(2, 1, 0)))
    assert schedule.bundles == 9
    assert schedule.matmul_density == 1.0
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert read_schedule(DUMP.replace("custom-call", "fusion").splitlines()) is None


@pytest.mark.parametrize(
    ("chip", "clock"), [("v4", 1.05), ("v5e", 1.5), ("v5p", 1.75), ("v6e", 1.75), ("7x", 2.2)]
)
def test_clocks_follow_from_the_peaks(chip, clock) -> None:
    assert units(chip).clock / 1e9 == pytest.approx(clock, rel=0.01)


def test_the_time_has_three_parts() -> None:
    from kernel_builder.tuning.tpu.model import LATENCY, estimate

    core = units("v5e")
    product = Work(products=(Product(4096, 4096, 4096),))
    assert estimate(product, core).seconds == pytest.approx(product.flops / core.flops / 0.8)
    copy = Work(hbm_bytes=820e6)
    assert estimate(copy, core).seconds == pytest.approx(1e-3 / 0.8)
    stalled = Work(hbm_bytes=820e6, stalls=100)
    assert estimate(stalled, core).waiting == pytest.approx(100 * LATENCY)
    # What fills half of a matrix unit takes the time of all of it.
    halves = [Work(products=(Product(4096, k, 4096),)) for k in (64, 128)]
    assert estimate(halves[0], core).seconds == estimate(halves[1], core).seconds


def test_the_compilers_schedule_goes_before_the_units() -> None:
    from kernel_builder.tuning.tpu.model import estimate

    core = units("7x")
    work = Work(products=(Product(1024, 256, 256),), programs=10)  # 64 matrix instructions
    schedule = Schedule((Loop(0, 9, 0), Loop(1, 100, 0), Loop(2, 800, 64)))
    assert estimate(work, core, schedule).computing == pytest.approx((800 + 1000) / core.clock)
    straight = Schedule((Loop(0, 9, 0), Loop(1, 100, 0)))
    assert estimate(Work(programs=10), core, straight).computing == 1000 / core.clock


def attention(length: int, dim: int, **config):
    path = Path(__file__).parents[2] / "examples/flash-attn/tuning/workloads_tpu.py"
    source = path.read_text().partition("\n@workload")[0]
    source = source.replace("from flash_attn.tpu_forward import attention_tpu", "")
    spec = importlib.util.spec_from_loader("flash_work", loader=None)
    module = importlib.util.module_from_spec(spec)
    exec(compile(source, str(path), "exec"), vars(module))
    array = SimpleNamespace(
        shape=(8, 32, length, dim), dtype=SimpleNamespace(itemsize=2, name="bfloat16")
    )
    arguments = {"q": array, "k": array, "v": array, "causal": False}
    return module.attention_work(
        arguments, {"block_q": 512, "block_k": 512, "blocks": 2, "buffers": 2, **config}
    )


def test_attention_published_for_one_core_of_a_7x() -> None:
    """Batch 8, 32 heads, dim 256: at 8k resident reaches 892 TFLOP/s and stream 653; at 32k stream
    reaches 695 and resident does not fit. The order follows from structure, with no schedule."""
    pytest.importorskip("jax")
    from kernel_builder.tuning.tpu.model import estimate

    core, vmem = units("7x"), 64 * MIB
    rate = {}
    for length in (8192, 32768):
        for strategy in ("stream", "resident"):
            work = attention(length, 256, strategy=strategy)
            fits = work.vmem <= vmem
            rate[strategy, length] = work.flops / estimate(work, core).seconds if fits else None
    assert rate["resident", 8192] > rate["stream", 8192]
    assert rate["stream", 32768] > rate["stream", 8192]  # fewer starts of the pipeline a FLOP
    assert rate["resident", 32768] is None


def test_finalists_are_the_best_of_each_group() -> None:
    core = units("v5e")
    configs = {config_key({"b": b}): {"b": b} for b in (1, 2, 3, 4)}

    def work(b: int, size: int) -> Work:
        group = "small" if b < 3 else "large"
        return Work(group=group, vmem=b * MIB * size, hbm_bytes=1e9 / b)

    works = [{config_key({"b": b}): work(b, size) for b in (1, 2, 3, 4)} for size in (1, 2)]
    assert finalists(works, configs, core, 16 * MIB, 1) == [{"b": 4}, {"b": 2}]
    # What names more VMEM than there is serves no launch; to serve all goes before to be fastest.
    assert finalists(works, configs, core, 3 * MIB, 1) == [{"b": 3}, {"b": 1}]


def test_the_compiler_is_asked_again_only_near_the_limit(tmp_path) -> None:
    asked = []

    def compiler(named: int):
        def compile_() -> Answer:
            asked.append(named)
            needed = named + 3 * MIB  # what only the compiler knows: its own temporaries
            fits = needed <= 64 * MIB
            return Answer(named=named, needed=needed, fits=fits, limit=None if fits else 64 * MIB,
                          schedule=[[1, named, 0]] if fits else None)  # fmt: skip

        return compile_

    programs = Programs(tmp_path, 64 * MIB)
    answers = {
        size: programs.ask(["p", 1], size * MIB, compiler(size * MIB))
        for size in (8, 16, 32, 60, 61, 62, 100, 16)
    }
    assert [a // MIB for a in asked] == [8, 60, 61, 62]
    assert [size for size, answer in answers.items() if answer.fits] == [8, 16, 32, 60, 61]
    assert answers[32].carried
    assert answers[32].needed == 35 * MIB
    # Another process finds what this one was told; another program has answers of its own.
    again = Programs(tmp_path, 64 * MIB)
    assert again.ask(["p", 1], 61 * MIB, compiler(0)) == answers[61]
    assert not again.ask(["p", 2], 32 * MIB, compiler(32 * MIB)).carried


def test_arrays_lie_in_tiles() -> None:
    assert Tile(2).bytes(1024, 256) == 1024 * 256 * 2
    assert Tile(2).bytes(10, 64) == 16 * 128 * 2
    assert Tile(4).bytes(512) == 8 * 512 * 4
