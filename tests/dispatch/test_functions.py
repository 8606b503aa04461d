"""`@kernelhub.tunable` functions: declarations, choices, and calls under compilers."""

from __future__ import annotations

import logging

import pytest

from kernelhub import tunable
from kernelhub.dispatch import capture, find_tunables, forced
from kernelhub.dispatch.space import Space
from kernelhub.dispatch.tunable import choices, powers_of_two
from kernelhub.errors import DispatchError, InputError
from kernelhub.formats.tree import Leaf, Numeric, Split, Tiles

from .helpers import tree

torch = pytest.importorskip("torch")

SPLIT_64 = {"block": 64, "algorithm": "split"}
SPLIT_256 = {"block": 256, "algorithm": "split"}
FUSED_256 = {"block": 256, "algorithm": "fused"}


def test_the_declared_default_without_a_tree(package) -> None:
    scan, area = package.functions.scan, package.functions.area
    assert scan(torch.ones(3), 5) == ("fused", 128)
    assert scan(torch.ones(3), n=5, block=64) == ("fused", 64)  # what the caller gives wins
    assert [area(torch.ones(n, 2)) for n in (4, 200, 4)] == [8, 16, 8]
    assert scan.__name__ == "scan"


def test_a_tree_chooses_by_value_and_by_shape(package, give) -> None:
    root = Split(Numeric(("n", "x_dim0"), 1000), Leaf((0,)), Leaf((1,)))
    give(tree("functions.scan", root, SPLIT_64, FUSED_256, features={"n": "int", "x_dim0": "int"}))
    scan = package.functions.scan
    for _ in range(3):
        assert scan(torch.ones(3), 5) == ("split", 64)
        assert scan(torch.ones(3), 5000) == ("fused", 256)
        assert scan(torch.ones(1500), 5, reverse=True) == ("fused", 256)


def test_a_tree_chooses_by_the_number_of_tiles(package, give) -> None:
    two_waves = Numeric((Tiles("n", 128), Tiles("x_dim0", 64)), 8)
    root = Split(two_waves, Leaf((0,)), Leaf((1,)))
    give(tree("functions.scan", root, SPLIT_64, FUSED_256, features={"n": "int", "x_dim0": "int"}))
    scan = package.functions.scan
    for _ in range(2):
        assert scan(torch.ones(128), 512) == ("split", 64)  # 4 * 2 tiles
        assert scan(torch.ones(129), 512) == ("fused", 256)
        assert scan(torch.ones(128), 513) == ("fused", 256)


def test_features_of_the_authors_own(package, give) -> None:
    root = Split(Numeric(("area",), 10), Leaf((0,)), Leaf((1,)))
    give(tree("functions.area", root, {"tile": 8}, {"tile": 16}, features={"area": "int"}))
    assert [package.functions.area(torch.ones(n, 2)) for n in (4, 6, 4)] == [8, 16, 8]


def test_what_cannot_run_is_passed_over(package, give, caplog) -> None:
    give(tree("functions.scan", Leaf((0, 1)), SPLIT_256, SPLIT_64, features={}))
    scan, x = package.functions.scan, torch.ones(3)
    with caplog.at_level(logging.WARNING, logger="kernelhub"):
        assert scan(x, 10) == ("split", 256)
        for _ in range(3):
            assert scan(x, 20_000) == ("split", 64)
        assert scan(x, 10) == ("split", 256)
    assert sum("cannot run here" in message for message in caplog.messages) == 1


def test_a_configuration_that_breaks_a_condition_never_runs(package, give) -> None:
    forbidden = {"block": 64, "algorithm": "fused"}
    give(tree("functions.scan", Leaf((0, 1)), forbidden, SPLIT_256, features={}))
    assert package.functions.scan(torch.ones(3), 10) == ("split", 256)


def test_a_tree_for_other_parameters_falls_to_the_default(package, give) -> None:
    give(tree("functions.scan", Leaf((0, 1)), {"tile": 3}, {"block": 9}, features={}))
    assert package.functions.scan(torch.ones(3), 10) == ("fused", 128)


def test_forced_and_captured(package) -> None:
    find_tunables(package)
    seen = []
    with capture(seen.append), forced({"functions.scan": SPLIT_256}):
        assert package.functions.scan(torch.ones(3), 10) == ("split", 256)
    (live,) = seen
    assert len(live.candidates) == 5
    assert live.default == {"block": 128, "algorithm": "fused"}
    assert live.features == {"n": 10, "x_dtype": "float32", "x_dim0": 3}
    assert live.run(SPLIT_64) == ("split", 64)
    with pytest.raises(DispatchError, match="exactly block, algorithm"):
        live.run({"block": 64, "algorithm": "split", "more": 1})
    with pytest.raises(DispatchError, match="not one of fused, split"):
        live.run({"block": 64, "algorithm": "other"})


def test_a_callback_may_choose(package) -> None:
    find_tunables(package)
    with capture(lambda live: live.candidates[-1]):
        assert package.functions.scan(torch.ones(3), 10) == ("fused", 256)


def test_errors_of_the_function_pass(package) -> None:
    with pytest.raises(TypeError):
        package.functions.scan(torch.ones(3))
    with pytest.raises(IndexError):
        package.functions.area(torch.ones(3))


def test_methods_can_be_tunable() -> None:
    class Model:
        @tunable(configs=[{"block": 4}, {"block": 8}])
        def run(self, n, *, block):
            return self, n, block

    model = Model()
    assert model.run(1) == (model, 1, 4)
    assert Model.run(model, 1) == (model, 1, 4)


@pytest.mark.parametrize(
    "declaration",
    [
        {},
        {"configs": [{"block": 1}], "space": {"block": (1, 2)}},
        {"configs": [{"block": 1}, {"blok": 2}]},
        {"configs": [{"blok": 2}]},
        {"space": {"block": (1, 2)}, "conditions": [lambda config: config["block"] > 5]},
        {"space": {"block": (1, 2)}, "default": {"block": 3}},
        {"space": {"block": (1, 2)}, "default": {"block": True}},
    ],
)
def test_contradicting_declarations_are_refused(declaration) -> None:
    with pytest.raises(InputError):

        @tunable(**declaration)
        def scale(x, *, block):
            return x


def test_spaces() -> None:
    assert powers_of_two(8, 64) == (8, 16, 32, 64)
    assert powers_of_two(1, 1) == (1,)
    for low, high in ((0, 8), (3, 8), (16, 8), (8, 12)):
        with pytest.raises(InputError):
            powers_of_two(low, high)
    space = Space(
        parameters={"a": choices(1, 2), "b": choices("x", "y")},
        conditions=(lambda config: config["a"] == 1 or config["b"] == "x",),
    )
    assert list(space) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}]
    assert space.size == 4
    assert space.admits({"a": 1, "b": "y"})
    assert not space.admits({"a": True, "b": "y"})
    assert not space.admits({"a": 2, "b": "y"})
