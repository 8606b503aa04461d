"""`@kernelhub.tunable` on JAX arrays: chosen while tracing, for the device that is traced for."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelhub import record, tunable
from kernelhub.dispatch import capture
from kernelhub.dispatch.dispatcher import bound_tree
from kernelhub.dispatch.record import read_record
from kernelhub.errors import DispatchError
from kernelhub.formats.tpu import chip_of_name
from kernelhub.formats.tree import Categorical, DeviceFacts, Leaf, Numeric, Split, Tree

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.sharding import AbstractDevice, AbstractMesh  # noqa: E402

KINDS = {"v5e": "TPU v5 lite", "v6e": "TPU v6 lite", "7x": "TPU7x", "v4": "TPU v4"}


def chip(name: str) -> DeviceFacts:
    found = chip_of_name(name)
    assert found is not None
    return found.facts


def tracing_for(name: str) -> Any:
    """What ahead-of-time compilation for a chip that is not here puts in force."""
    device = AbstractDevice(device_kind=KINDS[name], num_cores=1, platform="tpu")
    return jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


def kernel(x: Any, *, block: int, strategy: Any) -> Any:
    """x + block, by blocks of rows, so that a result tells which block was chosen."""

    def body(x_ref: Any, y_ref: Any) -> None:
        y_ref[...] = x_ref[...] + strategy(block)

    size = min(block, x.shape[0])
    spec = pl.BlockSpec((size, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (pl.cdiv(x.shape[0], size),)
    return pl.pallas_call(
        body, out_shape=shape, grid=grid, in_specs=[spec], out_specs=spec, interpret=True
    )(x)


def stream(block: int) -> int:
    return block


def resident(block: int) -> int:
    return -block


@pytest.fixture
def add() -> Any:
    """A fresh tunable: rows up to 16 resident by the tree, more of them streamed."""
    return tunable(
        space={"block": (8, 16, 32), "strategy": {"stream": stream, "resident": resident}},
        default={"block": 8, "strategy": "stream"},
    )(kernel)


SMALL = {"block": 16, "strategy": "resident"}
LARGE = {"block": 32, "strategy": "stream"}


def give(function: Any, *devices: str, **facts: Any) -> list[int]:
    """Give it a tree for each device; returns a list that grows when a tree is asked."""
    asked: list[int] = []
    trees = []
    for name in devices:
        tree = Tree(
            kernel="kernel",
            device=chip(name),
            tools={"jax": jax.__version__},
            source_hash=function.source_hash(),
            features={"x_dim0": "int", "x_dtype": "str"},
            configs=facts.get("configs", (SMALL, LARGE)),
            root=facts.get("root", Split(Numeric(("x_dim0",), 16), Leaf((0,)), Leaf((1,)))),
        )
        trees.append(bound_tree(tree, f"{name}.py", overlay=False))
    function.dispatcher.give(lambda: trees)
    ranking = function.dispatcher.ranking

    def counted(call: Any) -> Iterator[Any]:
        asked.append(call.arguments["x"].shape[0])
        return ranking(call)

    function.dispatcher.ranking = counted
    return asked


def chosen(function: Callable[[Any], Any], rows: int) -> float:
    return float(function(jnp.zeros((rows, 4)))[0, 0])


def test_one_choice_for_each_trace_and_none_in_the_program(add: Any) -> None:
    asked, traced = give(add, "v5e"), []

    @jax.jit
    def program(x: Any) -> Any:
        traced.append(x.shape[0])
        return add(x) * 2

    with tracing_for("v5e"):
        assert [chosen(program, n) for n in (8, 64) * 5] == [-32, 64] * 5
        assert asked == traced
        assert len(traced) < 5  # JAX 0.11 traces some shape a second time
        x = jnp.zeros((8, 4))

        def program_by_hand(x: Any) -> Any:
            return kernel(x, block=16, strategy=resident) * 2

        program_by_hand.__name__ = program_by_hand.__qualname__ = "program"
        plain = jax.jit(program_by_hand)
        ours, by_hand = str(program.trace(x).jaxpr), str(plain.trace(x).jaxpr)
        hlo, hlo_by_hand = (f.lower(x).as_text() for f in (program, plain))
    assert "callback" not in ours
    assert ours == by_hand
    assert hlo == hlo_by_hand


def test_vmap_chooses_by_one_example(add: Any) -> None:
    asked = give(add, "v5e")
    with tracing_for("v5e"):
        y = jax.vmap(add)(jnp.zeros((64, 8, 4)))
        assert float(y[5, 0, 0]) == -16
        assert float(jax.jit(jax.vmap(jax.vmap(add)))(jnp.zeros((2, 3, 64, 4)))[1, 2, 0, 0]) == 32
    assert asked == [8, 64]


def test_grad_through_a_rule_of_its_own(add: Any) -> None:
    give(add, "v5e")

    @jax.custom_vjp
    def op(x: Any) -> Any:
        return add(x)

    op.defvjp(lambda x: (add(x), x), lambda x, dy: (add(dy),))
    with tracing_for("v5e"):
        value, slope = jax.value_and_grad(lambda x: op(x).sum())(jnp.zeros((8, 4)))
        second = jax.jit(jax.vmap(jax.grad(lambda x: op(x).sum())))(jnp.zeros((3, 8, 4)))
    assert float(value) == -16 * 32
    assert (slope == 1 - 16).all()
    assert (second == 1 - 16).all()


def test_the_tree_is_that_of_the_device_that_the_trace_is_for(add: Any) -> None:
    """The same shapes, traced for a CPU, for a chip and for another, in any order."""
    give(add, "v5e")
    program = jax.jit(add)
    for _ in range(2):
        assert chosen(program, 8) == 8
        with tracing_for("v5e"):
            assert chosen(program, 8) == -16
        with tracing_for("v4"):  # older than every tree
            assert chosen(program, 8) == 8
    assert chosen(add, 8) == 8  # not under jit, on this CPU
    with tracing_for("v5e"):
        on_cpu = jax.device_put(jnp.zeros((8, 4)), jax.devices("cpu")[0])
        assert on_cpu.committed
        assert float(add(on_cpu)[0, 0]) == 8  # it says where it is


def test_facts_of_another_frameworks_device_do_not_count(add: Any) -> None:
    """A machine on which torch sees a TPU-like device and JAX a CPU."""
    give(add, "v5e")
    add.fallback_device = chip("v5e")
    assert chosen(add, 8) == 8


def test_an_older_generations_tree(add: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The nearest older one, where all that fitted it fits here; said once, for each device."""
    give(add, "v5e", "v4")
    with caplog.at_level(logging.WARNING, logger="kernelhub"):
        for _ in range(3):
            with tracing_for("v6e"):
                assert chosen(add, 8) == -16
            with tracing_for("7x"):  # 64 MiB of VMEM: v5e's tree may ask for 128, v4's for 16
                assert chosen(add, 8) == -16
    told = [text.partition(": ")[2] for text in caplog.messages]
    assert told == [
        "no tree for TPU v6e; that of TPU v5e chooses",
        "no tree for TPU7x; that of TPU v4 chooses",
    ]


def test_no_tree_fits(add: Any, caplog: pytest.LogCaptureFixture) -> None:
    give(add, "v5e")
    with caplog.at_level(logging.WARNING, logger="kernelhub"), tracing_for("7x"):
        assert [chosen(add, 8) for _ in range(2)] == [8, 8]
    assert len(caplog.messages) == 1
    assert "none of an older TPU whose choices all fit it; the author's default runs" in caplog.text


def test_dtypes_are_features(add: Any) -> None:
    root = Split(Categorical("x_dtype", ("bfloat16",)), Leaf((0,)), Leaf((1,)))
    give(add, "v5e", root=root)
    with tracing_for("v5e"):
        found = [float(add(jnp.zeros((8, 4), d))[0, 0]) for d in (jnp.bfloat16, jnp.float32)]
    assert found == [-16, 32]


def test_a_captured_launch_compiles(add: Any) -> None:
    seen: list[Any] = []
    with capture(seen.append):
        add(jnp.zeros((8, 4)))
    seen[0].compile(SMALL)
    with pytest.raises(TypeError):
        seen[0].compile({"block": "wide", "strategy": "stream"})


def test_a_symbolic_size_is_named(add: Any) -> None:
    give(add, "v5e")
    rows = jax.export.symbolic_shape("rows, 4")
    shape = jax.ShapeDtypeStruct(rows, jnp.float32)
    message = "dimension 0 of x is rows, and the choice of a configuration needs its value"
    with tracing_for("v5e"), pytest.raises(DispatchError, match=message) as caught:
        jax.eval_shape(add, shape)
    assert "block=..., strategy=..." in str(caught.value)


def test_a_symbolic_size_where_nothing_depends_on_it() -> None:
    plain = tunable(configs=[{"factor": 2}])(lambda x, *, factor: x * factor)
    exported = jax.export.export(jax.jit(plain))(
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), jnp.float32)
    )
    assert exported.call(jnp.ones(5)).tolist() == [2.0] * 5
    by_caller = tunable(configs=[{"factor": 2}], default=lambda found: {"factor": found["x"].size})(
        lambda x, *, factor: x * factor
    )
    exported = jax.export.export(jax.jit(lambda x: by_caller(x, factor=3)))(
        jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), jnp.float32)
    )
    assert exported.call(jnp.ones(2)).tolist() == [3.0, 3.0]


def test_no_tracer_stays(add: Any) -> None:
    give(add, "v5e")
    left: list[weakref.ref[Any]] = []

    def program(x: Any) -> Any:
        left.append(weakref.ref(x))
        return add(x)

    with tracing_for("v5e"), jax.checking_leaks():
        for rows in (8, 64):
            jax.jit(program)(jnp.zeros((rows, 4)))
    jax.clear_caches()
    gc.collect()
    assert [reference() for reference in left] == [None, None]


def test_recording_neither_reads_nor_keeps_arrays(add: Any, tmp_path: Path) -> None:
    left: list[weakref.ref[Any]] = []

    def program(x: Any) -> Any:
        left.append(weakref.ref(x))
        return add(x)

    with record(tmp_path / "launches.jsonl"), jax.checking_leaks():
        jax.jit(program)(jnp.zeros((8, 4)))
        for fill in (1.0, 2.0, 3.0):
            add(jnp.full((64, 4), fill))
        jax.clear_caches()
        gc.collect()
        assert left[0]() is None
    # A line when a launch is new, and one for what was counted since: contents make nothing new.
    assert (tmp_path / "launches.jsonl").read_text().count('"count":') == 3
    shapes = {fact.shape for launch, _ in read_record(tmp_path / "launches.jsonl")
              for _, fact in launch.arguments}  # fmt: skip
    assert shapes == {(8, 4), (64, 4)}


def test_threads_choose_alike(add: Any) -> None:
    """Many threads trace at once, each for its own chip."""
    give(add, "v5e")
    found: list[tuple[str, float]] = []
    start = threading.Barrier(6)

    def run(name: str) -> None:
        start.wait()
        for rows in (8, 64):
            with tracing_for(name):
                found.append((name, chosen(jax.jit(lambda x: add(x)), rows)))

    names = ["v5e", "v6e", "v4"] * 2
    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = {"v5e": [-16, 32], "v6e": [-16, 32], "v4": [8, 8]}
    assert sorted(found) == sorted((name, y) for name in names for y in wanted[name])
