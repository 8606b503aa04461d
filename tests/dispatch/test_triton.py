"""Autotuned Triton kernels that have trees, under a driver that only notes launches down."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernelhub.dispatch import capture, find_tunables, forced  # noqa: E402
from kernelhub.errors import DispatchError, FormatError  # noqa: E402
from kernelhub.formats.tree import Categorical, Leaf, Numeric, Split  # noqa: E402
from kernelhub.settings import scope  # noqa: E402

from .helpers import B200, H100, H200, L4, config, tree  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SMALL_OR_LARGE = Split(Numeric(("n",), 1000), Leaf((0, 1)), Leaf((1, 0)))


def block(device) -> int:
    """BLOCK of the last launch."""
    return device.last[3][-1]


@pytest.fixture
def tensors():
    return torch.empty(1 << 12), torch.empty(1 << 12)


def test_the_tree_answers_instead_of_a_benchmark(device, package, give, tensors) -> None:
    x, out = tensors
    give(tree("ops.scale", SMALL_OR_LARGE, config(128), config(512)))
    kernel = package.ops.scale
    for n, wanted in ((100, 128), (2000, 512), (100, 128), (2000, 512)):
        kernel[(4,)](x, out, n, 1.5, True)
        assert block(device) == wanted
        assert kernel.best_config.kwargs == {"BLOCK": wanted}
    kernel[lambda meta: (n // meta["BLOCK"], 2)](x, out, n=2048, scale=1.5, FLAG=False)
    assert device.last[0] == (2000 // 512, 2, 1)


def test_without_a_tree_triton_tunes_as_ever(device, package, give, tensors) -> None:
    x, out = tensors
    give()
    package.ops.scale._do_bench = lambda call, quantiles: (call(), [1.0] * 3)[1]
    package.ops.scale[(4,)](x, out, 100, 1.5, True)
    assert len(device.launches) == 4  # three candidates, then the best
    assert list(package.ops.scale.cache) == [(100, "torch.float32", "torch.float32")]


def test_a_tuned_parameter_may_stand_before_others(device, package, give, tensors) -> None:
    x, out = tensors
    give(tree("ops.middle", SMALL_OR_LARGE, config(64), config(256)))
    for bias in (None, x, None, x):
        package.ops.middle[(1,)](x, out, n=5000, bias=bias)
        assert device.last[3] == (x, out, 256, 5000, bias)
    with pytest.raises(TypeError):
        package.ops.middle[(1,)](x, out, 64, 5000)


def test_a_made_configuration_and_dtype_features(device, package, give, tensors) -> None:
    x, out = tensors
    root = Split(Categorical("x_dtype", ("float16", "bfloat16")), Leaf((0,)), Leaf((1,)))
    features = {"x_dtype": "str"}
    give(tree("ops.scale", root, config(1024, 8), config(128), features=features))
    package.ops.scale[(4,)](x, out, 100, 1.5, True)
    assert block(device) == 128
    package.ops.scale[(4,)](x.half(), out, 100, 1.5, True)
    assert block(device) == 1024
    assert device.last[2].num_warps == 8


def test_tests_on_shapes(device, package, give) -> None:
    root = Split(Numeric(("x_dim0",), 100), Leaf((0,)), Leaf((1,)))
    give(tree("ops.scale", root, config(128), config(256), features={"x_dim0": "int"}))
    out = torch.empty(4096)
    for size, wanted in ((10, 128), (200, 256), (10, 128), (200, 256)):
        package.ops.scale[(4,)](torch.empty(size), out, 10, 1.5, True)
        assert block(device) == wanted


def test_author_pruning_still_rules(device, package, give, tensors) -> None:
    x, out = tensors
    give(tree("ops.pruned", Leaf((0, 1)), config(256), config(64)))
    package.ops.pruned[(1,)](x, out, 4096)
    assert block(device) == 256
    package.ops.pruned[(1,)](x, out, 100)  # the author allows no block above n
    assert block(device) == 64


def test_a_performance_model_may_not_veto(device, package, give, tensors) -> None:
    x, out = tensors
    give(tree("ops.modelled", Leaf((0,)), config(256)))
    for _ in range(3):
        package.ops.modelled[(1,)](x, out, 64, 7)
        assert device.last[3] == (x, out, 64, 7, 256)


def test_configuration_hooks_run_at_each_launch(device, package, give, tensors) -> None:
    x, out = tensors
    give(tree("ops.hooked", Leaf((0,)), config(128)))
    for _ in range(3):
        package.ops.hooked[(1,)](x, out, 64)
    assert package.ops.calls == [("pre_hook", 128)] * 3


def test_heuristics_in_both_nestings(device, package, give, tensors) -> None:
    x, out = tensors
    give(
        tree("ops.inner_heuristics", SMALL_OR_LARGE, config(64), config(256)),
        tree("ops.outer_heuristics", SMALL_OR_LARGE, config(64), config(256)),
    )
    for n, wanted in ((128, 64), (1025, 256), (128, 64), (1024, 256)):
        package.ops.inner_heuristics[(1,)](x, out, n)
        assert device.last[3][3:] == (n % wanted == 0, wanted)
        package.ops.outer_heuristics[(1,)](x, out, n)
        assert device.last[3][3:] == (n > 1000, wanted)


def test_calls_of_a_kernel_that_cannot_be_prepared_may_take_any_form(
    device, package, give, tensors
) -> None:
    x, out = tensors
    give(tree("ops.inner_heuristics", SMALL_OR_LARGE, config(64), config(256)))
    kernel = package.ops.inner_heuristics
    for _ in range(3):  # new, remembered, remembered
        for launch in (
            lambda: kernel[(1,)](x, out, 128),
            lambda: kernel[(1,)](x, n=128, out=out),
            lambda: kernel[lambda meta: (128 // meta["BLOCK"],)](out=out, x=x, n=128),
        ):
            launch()
            assert device.last[3][3:] == (True, 64)
        with pytest.raises(TypeError, match="out"):
            kernel[(1,)](x, n=128)
    assert len(device.launches) == 9


def test_what_does_not_fit_is_passed_over_once(device, package, give, caplog) -> None:
    give(tree("ops.matmul", Leaf((0, 1)), config(256, 8, 2), config(64)))
    a = torch.empty(1 << 16, dtype=torch.float16)
    with caplog.at_level(logging.WARNING, logger="kernelhub"):
        for _ in range(3):
            package.ops.matmul[(1,)](a, a, a, 256)
    assert len(device.launches) == 3
    assert block(device) == 64
    refusals = [r for r in caplog.messages if "cannot run here" in r]
    assert len(refusals) == 1
    assert "shared memory" in refusals[0]


def test_nothing_fits(device, package, give) -> None:
    give(tree("ops.matmul", Leaf((0,)), config(256, 8, 2)))
    package.ops.matmul._kernelhub_tunable.author.configs.pop(0)
    a = torch.empty(1 << 16, dtype=torch.float16)
    with pytest.raises(DispatchError, match=r"ops\.matmul: no configuration"):
        package.ops.matmul[(1,)](a, a, a, 256)


@pytest.mark.parametrize(
    ("bundled", "overlay", "wanted", "origin"),
    [
        ([(H200, 128), (H100, 256)], [], 128, "bundled"),
        ([(H200, 128)], [(H200, 512)], 512, "overlay"),
        ([(H200, 128)], [(H100, 512)], 128, "bundled"),
        ([(H100, 256), (L4, 512)], [], 256, "compatible"),
        ([(L4, 512)], [], 128, "default"),  # another family
        ([(B200, 512)], [], 128, "default"),  # a newer ISA
    ],
)
def test_order_of_choice(device, package, give, tensors, bundled, overlay, wanted, origin) -> None:
    make = lambda facts, size: tree("ops.scale", Leaf((0,)), config(size), device=facts)  # noqa: E731
    binding = give(*(make(*b) for b in bundled), overlays=tuple(make(*o) for o in overlay))
    package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    assert block(device) == wanted
    tunable = binding.tunables["ops.scale"]
    call = tunable.call((*tensors, 100, 1.5, True), {}, (1,))
    assert next(tunable.dispatcher.ranking(call)).origin == origin


def test_forced_wins_over_trees(device, package, give, tensors) -> None:
    give(tree("ops.scale", Leaf((0,)), config(128)))
    package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    with forced({"ops.scale": config(512)}):
        package.ops.scale[(1,)](*tensors, 100, 1.5, True)
        assert block(device) == 512
    package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    assert block(device) == 128


@pytest.mark.parametrize("damage", ["import os\n", "\xff", "", "x" * 10])
def test_a_damaged_tree_is_passed_over(device, package, give, tensors, caplog, damage) -> None:
    from pathlib import Path

    folder = Path(package.__file__).parent / "tuning"
    folder.mkdir()
    (folder / "ops.scale.nvidia-h100.py").write_bytes(damage.encode("latin-1"))
    with scope(strict=True), pytest.raises(FormatError, match="nvidia-h100"):
        give()
    give(tree("ops.scale", Leaf((0,)), config(512)))
    with caplog.at_level(logging.WARNING, logger="kernelhub"):
        for _ in range(2):
            package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    assert block(device) == 512
    assert sum("tree not used" in m for m in caplog.messages) == 1


def test_a_tree_of_other_source_is_used_and_logged(device, package, give, tensors, caplog) -> None:
    mine = find_tunables(package)["ops.scale"].source_hash()
    give(tree("ops.scale", Leaf((0,)), config(512), source=mine))
    package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    assert not caplog.messages
    give(tree("ops.scale", Leaf((0,)), config(256)))
    package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    assert block(device) == 256
    assert [m for m in caplog.messages if "another version" in m]


def test_capture_sees_launches_before_they_happen(device, package, tensors) -> None:
    find_tunables(package)
    seen = []

    def look(live):
        assert not device.launches
        seen.append(live)

    x, out = tensors
    with capture(look):
        package.ops.pruned[(1,)](x, out, 128)
    (live,) = seen
    assert live.tunable.name == "ops.pruned"
    assert live.candidates == (config(64), config(128))
    assert live.default == config(64)
    assert live.features == {
        "x_dtype": "float32", "x_dim0": 4096, "out_dtype": "float32", "out_dim0": 4096, "n": 128,
    }  # fmt: skip
    assert block(device) == 64  # the default, and nothing was benchmarked
    resources = live.compile(config(128))
    assert resources.threads == 128
    assert len(device.launches) == 1


def test_a_restored_run_leaves_inputs_as_they_were(device, package, tensors) -> None:
    find_tunables(package)
    seen = []
    x, out = torch.ones(64), torch.ones(64)
    with capture(seen.append):
        package.ops.pruned[(1,)](x, out, 64)
    package.ops.pruned.fn.add_pre_run_hook(lambda x, *_, **__: x.zero_())  # "the kernel" writes x
    seen[0].run(config(64), restore=True)
    assert x.sum() == 64
    assert out.sum() == 0
    seen[0].run(config(64))
    assert x.sum() == 0


def test_two_devices_of_one_process(device, package, give, tensors) -> None:
    give(tree("ops.scale", SMALL_OR_LARGE, config(128), config(512)))
    first = device.number
    package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    kernel = package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    device.number = first + 1000
    other = package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    assert other is not kernel
    device.number = first
    assert package.ops.scale[(1,)](*tensors, 100, 1.5, True) is kernel


def test_compiles_only_what_it_runs(device, package, give, tensors) -> None:
    give(tree("ops.scale", Leaf((0, 1)), config(128), config(512)))
    (kernel,) = package.ops.scale.warmup(*tensors, 100, 1.5, True, grid=(1,))
    package.ops.scale[(1,)](*tensors, 100, 1.5, True)
    caches = package.ops.scale.fn.device_caches[device.number]
    assert list(caches[0].values()) == [kernel]


def test_same_choice_again_whatever_came_before(device, package, give, tensors) -> None:
    bound = give(tree("ops.scale", SMALL_OR_LARGE, config(128), config(512)))
    call = bound.tunables["ops.scale"].call((*tensors, 1000, 1.5, True), {}, (1,))
    expected = [c.config for c in bound.tunables["ops.scale"].dispatcher.ranking(call)]
    for n in (1, 5000, 1000, 16, 999, 1001):
        package.ops.scale[(1,)](*tensors, n, 1.5, True)
    again = replace(call)
    assert [c.config for c in bound.tunables["ops.scale"].dispatcher.ranking(again)] == expected
