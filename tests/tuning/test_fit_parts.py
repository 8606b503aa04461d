"""The parts of the fit: cuts, the forest, drawn points, tests of tile counts, charges."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_samples import SOURCE

from kernel_builder.tuning.fit.cut import best_cut
from kernel_builder.tuning.fit.drawing import draw
from kernel_builder.tuning.fit.forest import Forest
from kernel_builder.tuning.fit.grow import Grower
from kernel_builder.tuning.fit.learned import design
from kernel_builder.tuning.fit.loss import FAILURE, Rows, charged, make_rows, slowdowns
from kernel_builder.tuning.fit.terms import Term, kinds, tile_terms
from kernel_builder.tuning.matrix import Cell, Matrix, Point, config_key
from kernel_builder.tuning.runners.model import DEVICE
from kernelhub.formats.tree import Leaf, Numeric, Split, Tiles, Tree
from kernelhub.formats.tree_model import MAX_BLOCK, faults_of

FEW = settings(max_examples=max(1, settings.default.max_examples // 2))
Features = list[dict[str, Any]]


@st.composite
def points(draw_: st.DrawFn) -> Features:
    """Up to 8 points: sizes, shifts, floats, words, a follower, and what some points lack."""
    count = draw_(st.integers(1, 8))
    columns: dict[str, Any] = {
        "M": st.integers(1, 1 << 20),
        "N": st.integers(1, 64).map(lambda n: 64 * n),
        "shift": st.integers(-3, 3),
        "eps": st.floats(1e-9, 1e3),
        "mixed": st.one_of(st.integers(1, 9), st.floats(0.5, 9.0)),
        "word": st.sampled_from(["a", "b", "c"]),
        "flag": st.booleans(),
        "absent": st.one_of(st.none(), st.integers(1, 9)),
    }
    names = draw_(st.sets(st.sampled_from(sorted(columns))))
    rows = [{name: draw_(columns[name]) for name in sorted(names)} for _ in range(count)]
    for row in rows:
        if "M" in row:
            row["blocks"] = -(-row["M"] // 128)
    return rows


# Cuts


def brute_force(values: Sequence[float], losses: np.ndarray) -> tuple[float, float]:
    """What the best single cut gains, and half of what the best stretch inside does."""
    size, totals = len(values), losses.sum(axis=0)
    edges = [i for i in range(1, size) if values[i - 1] < values[i]]
    single = max(
        (totals.min() - losses[:i].sum(axis=0).min() - losses[i:].sum(axis=0).min() for i in edges),
        default=0.0,
    )
    usual = int(totals.argmin())
    stretch = max(
        (
            float((losses[i:j, usual] - losses[i:j, other]).sum()) / 2
            for i, j in itertools.combinations(edges, 2)
            for other in range(losses.shape[1])
        ),
        default=0.0,
    )
    return float(single), stretch


@given(st.data(), st.integers(1, 9), st.integers(1, 4))
def test_the_best_cut_gains_what_trying_all_of_them_finds(
    data: st.DataObject, size: int, choices: int
) -> None:
    values = sorted(data.draw(st.lists(st.integers(-2, 6), min_size=size, max_size=size)))
    cell = st.integers(0, 8).map(float)
    losses = np.array(
        data.draw(
            st.lists(
                st.lists(cell, min_size=choices, max_size=choices), min_size=size, max_size=size
            )
        )
    )
    cut = best_cut(np.array(values, float), losses, losses.sum(axis=0))
    if len(set(values)) == 1:
        assert cut is None
        return
    assert cut is not None
    assert values[cut.position] < values[cut.position + 1]
    single, stretch = brute_force(values, losses)
    assert cut.gain == pytest.approx(max(single, stretch), abs=1e-6)
    if single > stretch:
        parted = losses[: cut.position + 1].sum(axis=0)[cut.choice_below]
        parted += losses[cut.position + 1 :].sum(axis=0)[cut.choice_above]
        assert losses.sum(axis=0).min() - parted == pytest.approx(single, abs=1e-6)


def test_of_cuts_that_gain_the_same_the_widest_gap_is_taken() -> None:
    values = np.array([1.0, 2.0, 100.0, 101.0])
    losses = np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    cut = best_cut(values, losses, losses.sum(axis=0))
    assert cut is not None
    assert cut.position == 1


# The forest


def steps(x: np.ndarray) -> np.ndarray:
    """Two outputs, each a step function of one feature."""
    return np.stack([np.where(x[:, 0] > 3, 0.5, 0.125), np.where(x[:, 1] > 1, 0.0, 0.75)], axis=1)


def grid() -> np.ndarray:
    return np.array(list(itertools.product(range(7), range(4))), float)


def test_a_forest_gives_the_rows_that_it_has_seen() -> None:
    assert np.array_equal(Forest(grid(), steps(grid())).predict(grid()), steps(grid()))


def test_rows_that_no_feature_tells_apart_have_their_mean() -> None:
    forest = Forest(np.zeros((2, 3)), np.array([[0.2], [0.4]]))
    assert forest.predict(np.ones((1, 3))) == pytest.approx(0.3)
    assert Forest(np.zeros((2, 0)), np.array([[0.2], [0.4]])).predict(
        np.zeros((1, 0))
    ) == pytest.approx(0.3)


@FEW
@given(st.integers(0, 1000), st.integers(1, 12))
def test_a_forest_stays_within_its_outputs_and_knows_no_order(seed: int, rows: int) -> None:
    random_ = np.random.default_rng(seed)
    x, y = random_.integers(0, 5, (rows, 3)).astype(float), random_.random((rows, 2))
    asked = random_.random((20, 3)) * 8 - 2
    found = Forest(x, y).predict(asked)
    assert (found >= y.min(axis=0) - 1e-4).all()
    assert (found <= y.max(axis=0) + 1e-4).all()
    turned = random_.permutation(rows)
    assert np.array_equal(found, Forest(x[turned], y[turned]).predict(asked))


def test_what_is_asked_for_does_not_change_how_measured_points_are_seen() -> None:
    """A size that is 0 on one measured point alone, which no drawn point took it from."""
    measured: Features = [{"shift": s} for s in (0, 5, 7)]
    asked: Features = [{"shift": 5}]
    seen = design([*measured, *asked], [Term(("shift",))])
    assert seen[:, 0].tolist() == [0.0, 5.0, 7.0, 5.0]
    positive = design([{"M": 4}, {"M": 8}, {"M": 16}], [Term(("M",))])
    assert positive[:, 0].tolist() == [2.0, 3.0, 4.0]


# Drawn points


@given(points())
def test_drawn_points_lie_between_the_measured_ones(rows: Features) -> None:
    drawn = draw(rows, 20, random.Random(0))
    assert len(drawn) == 20
    for point in drawn:
        assert any(point.keys() == row.keys() for row in rows)
        for name in ("M", "N", "eps", "mixed", "blocks"):
            if name in point:
                column = [row[name] for row in rows]
                assert min(column) * (1 - 1e-9) <= point[name] <= max(column) * (1 + 1e-9)  # type: ignore[operator]
        for name in ("M", "N"):
            if name in point:
                column = [row[name] for row in rows]
                assert type(point[name]) is int
                assert point[name] % math.gcd(*column) == 0  # type: ignore[operator]
        if "M" in point:
            nearest = min(rows, key=lambda row: abs(math.log(row["M"] / point["M"])))
            distance = abs(math.log(nearest["M"] / point["M"]))  # type: ignore[operator]
            alike = [r for r in rows if abs(math.log(r["M"] / point["M"])) <= distance + 1e-12]
            # Where one is a multiple of the other they say the same, and nothing tests the second.
            alone = any(
                row["blocks"] * rows[0]["M"] != row["M"] * rows[0]["blocks"] for row in rows
            )
            assert not alone or point["blocks"] in [row["blocks"] for row in alike]
        taken = [name for name in ("word", "flag") if name in point]
        taken += ["shift"] if min(row.get("shift", 1) for row in rows) <= 0 else []
        taken += ["absent"] if any(row.get("absent", 1) is None for row in rows) else []
        assert any(all(row[name] == point[name] for name in taken) for row in rows)


@pytest.mark.parametrize("count", [1, 3])
def test_one_point_or_equal_sizes_are_drawn_as_they_are(count: int) -> None:
    rows: Features = [{"M": 48, "x": "a"}] * count
    assert draw(rows, 5, random.Random(0)) == [{"M": 48, "x": "a"}] * 5
    assert draw([{}], 2, random.Random(0)) == [{}, {}]


def test_a_size_that_is_0_on_one_point_is_taken_from_measured_points() -> None:
    drawn = draw([{"M": 0}, {"M": 5}, {"M": 70}], 40, random.Random(0))
    assert {point["M"] for point in drawn} == {0, 5, 70}


def test_no_drawn_point_is_larger_than_the_largest() -> None:
    rows: Features = [{"M": 1, "N": 4096}, {"M": 4096, "N": 1}, {"M": 64, "N": 64}]
    drawn = draw(rows, 200, random.Random(0))
    assert max(p["M"] * p["N"] for p in drawn) <= 4096  # type: ignore[operator]
    assert len({p["M"] for p in drawn}) > 50


def test_drawing_ends_where_sizes_are_never_large_together() -> None:
    """Of points whose 12 sizes are drawn apart one in half a billion is small enough."""
    rows: Features = [{f"x{i:02}": 1000 if i == j else 1 for i in range(12)} for j in range(12)]
    drawn = draw(rows, 3, random.Random(0))
    assert all(math.prod(point.values()) <= 1000 for point in drawn)  # type: ignore[arg-type]


# Tests of tile counts

BLOCKS = st.frozensets(st.sampled_from([-4, 0, 1, 16, 100, MAX_BLOCK, MAX_BLOCK + 1, 2**60]))


@given(points(), st.lists(BLOCKS, min_size=1, max_size=4))
def test_every_test_is_one_that_a_tree_may_have(
    rows: Features, blocks: list[frozenset[int]]
) -> None:
    for term in tile_terms(rows, blocks):
        tree = Tree(
            kernel="k", device=DEVICE, tools={}, source_hash=SOURCE, features=kinds(rows),
            configs=({"BLOCK": 1},), root=Split(term.test(2.5), Leaf((0,)), Leaf((0,))),
        )  # fmt: skip
        assert list(faults_of(tree)) == []
        assert all(math.isfinite(term.value(row)) for row in rows)


def test_tiles_are_counted_by_the_blocks_in_which_configurations_differ() -> None:
    rows: Features = [{"M": m, "N": n} for m in (100, 1000, 3000) for n in (50, 700)]
    terms = tile_terms(rows, [frozenset({32, 64}), frozenset({32, 128})])
    blocks = {f.block for t in terms for f in (*t.left, *t.right) if isinstance(f, Tiles)}
    assert blocks == {64, 128}
    assert Term((Tiles("M", 128), Tiles("N", 128))) in terms
    assert Term((Tiles("M", 64), Tiles("N", 128))) not in terms  # no configuration has both


def test_no_tile_is_larger_than_a_tree_admits() -> None:
    """Nor has it one element, for which its count is the size."""
    rows: Features = [{"M": m} for m in (1000, 10**10, 10**11)]
    terms = tile_terms(rows, [frozenset({1, 512, MAX_BLOCK}), frozenset({3 * MAX_BLOCK})])
    blocks = {f.block for t in terms for f in (*t.left, *t.right) if isinstance(f, Tiles)}
    assert blocks == {512, MAX_BLOCK}


def test_products_of_counts_are_left_out_where_there_would_be_thousands() -> None:
    source = random.Random(0)
    rows: Features = [{f"s{i}": source.randint(1, 5000) for i in range(10)} for _ in range(12)]
    terms = tile_terms(rows, [frozenset(range(8 * i + 2, 8 * i + 8)) for i in range(4)])
    assert not any(sum(isinstance(f, Tiles) for f in t.left) == 2 for t in terms)
    assert any(isinstance(f, Tiles) for t in terms for f in t.left)


def test_a_count_of_tiles_has_no_threshold_at_the_size_of_a_block() -> None:
    """Between 16 and 100: a size would be divided at the block, 64, a count near the middle."""
    rows = Rows(
        features=({"M": 16, "tiles": 31}, {"M": 100, "tiles": 200}),
        loss=((0.0, 1.0), (1.0, 0.0)),
        pruned=(frozenset(), frozenset()),
        blocks=(frozenset({64}), frozenset({128})),
    )
    size = Grower(rows, [Term(("M",))]).grow([0, 1])
    count = Grower(rows, [Term((Tiles("tiles", 2),))]).grow([0, 1])
    assert isinstance(size.test, Numeric)
    assert isinstance(count.test, Numeric)
    assert size.test.threshold == 64
    assert count.test.threshold == 40


# Charges


def one_row(loss: Mapping[int, float], weight: float, goal: float) -> Rows:
    return Rows(features=({},), loss=(tuple(loss.values()),), weight=(weight,), goal=goal)


@given(
    st.lists(st.floats(0.0, 0.8), min_size=1, max_size=5),
    st.floats(1e-5, 1e3),
    st.floats(1.0, 2.0),
)
def test_slowdowns_are_what_was_charged_for(logs: list[float], weight: float, goal: float) -> None:
    losses = charged(np.array([logs]), goal)[0] * weight
    rows = one_row(dict(enumerate(losses.tolist())), weight, goal)
    assert slowdowns(rows)[0] == pytest.approx(logs, abs=1e-9)


def test_a_failure_is_as_bad_as_the_worst_that_is_learned() -> None:
    rows = one_row({0: FAILURE, 1: 1e5, 2: 0.0}, weight=1e-5, goal=1.05)
    assert slowdowns(rows)[0].tolist() == [0.8, 0.8, 0.0]


def test_what_not_every_point_has_is_no_feature_of_any_row() -> None:
    """Without the point that lacks it a tree would test it, and then fail on that point."""
    features: Features = [{"M": m, "D": 64} for m in (1, 2, 3)] + [{"M": 4, "D": None}, {"M": 5}]
    all_points = tuple(Point(id=str(i), features=f) for i, f in enumerate(features))
    config = {"BLOCK": 1}
    cells = {(p.id, config_key(config)): Cell(ms=1.0) for p in all_points}
    matrix = Matrix(kernel="k", points=all_points, configs=(config,), cells=cells)
    rows = make_rows(matrix, goal=1.05)
    assert [dict(row) for row in rows.features] == [{"M": m} for m in (1, 2, 3, 4, 5)]
