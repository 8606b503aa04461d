"""Trees that a forest teaches between the measured points."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_samples import SOURCE, modelled

from kernel_builder.tuning import evaluate as evaluation
from kernel_builder.tuning.evaluate import evaluate, leave_one_shape_out, ranker
from kernel_builder.tuning.fit import Complexity, FitOptions, fit
from kernel_builder.tuning.matrix import Cell, Matrix, Point, config_key, geomean
from kernel_builder.tuning.runners.model import DEVICE
from kernelhub.formats.tree import Literal, Tree, parse, render

PLAIN = Complexity(configs=8, compound=True, price=0.03, blur=0.0)
LEARNED = replace(PLAIN, learned=True)
FEW = settings(max_examples=max(1, settings.default.max_examples // 4))
CELLS = st.one_of(
    st.builds(Cell, ms=st.floats(0.01, 10)),
    st.builds(Cell, ms=st.floats(0.01, 10), pruned=st.just(True)),
    st.just(Cell(reason="fault")),
    st.none(),  # never measured
)


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Up to 8 points and 4 configurations of two blocks each; weights that differ by 1e5."""
    configs = tuple({"BM": 16 << i, "BN": 128 >> i, "num_warps": 4} for i in range(4))
    sizes = st.tuples(st.integers(1, 4096), st.integers(-1, 300), st.sampled_from(["a", "b"]))
    points = tuple(
        Point(id=str(i), features={"M": m, "N": n, "x": x}, weight=draw(st.sampled_from([1, 1e5])))
        for i, (m, n, x) in enumerate(draw(st.lists(sizes, min_size=1, max_size=8, unique=True)))
    )
    cells = {}
    for point, config in itertools.product(points, configs):
        cell = draw(CELLS)
        if cell is not None:
            cells[point.id, config_key(config)] = cell
    return Matrix(kernel="k", points=points, configs=configs, cells=cells)


@FEW
@given(matrices(), st.integers(1, 4))
def test_what_a_learned_tree_promises_on_any_measurements(matrix: Matrix, limit: int) -> None:
    """No more configurations than asked for, rules of trees kept, and no failure at a measured
    point where another configuration of the tree works."""
    if all(matrix.best(point) is None for point in matrix.points):
        return
    fitted = fit(matrix, FitOptions(), complexity=replace(LEARNED, configs=limit))
    assert 1 <= len(fitted.configs) <= limit
    tree = Tree(
        kernel="k", device=DEVICE, tools={}, source_hash=SOURCE, features=fitted.features,
        configs=fitted.configs, root=fitted.root,
    )  # fmt: skip
    assert parse(render(tree), "t.py") == tree
    rank = ranker(fitted.root, fitted.configs)
    for point in matrix.points:
        cells = [matrix.cell(point, config) for config in fitted.configs]
        runs = matrix.cell(point, matrix.runs(point, rank(point.features)))
        if any(cell is not None and cell.ms and not cell.pruned for cell in cells):
            assert runs is None or (runs.ms and not runs.pruned)


def by_size(features: list[dict[str, Literal]], ms: Callable[[Point, int], float]) -> Matrix:
    """Two configurations, blocks of 16 and 64."""
    points = tuple(Point(id=f"{i:03}", features=f) for i, f in enumerate(features))
    configs = ({"BLOCK": 16}, {"BLOCK": 64})
    cells = {
        (p.id, config_key(c)): Cell(ms=ms(p, c["BLOCK"]))
        for p, c in itertools.product(points, configs)
    }
    return Matrix(kernel="k", points=points, configs=configs, cells=cells)


@pytest.mark.parametrize(
    "features",
    [
        [{"M": 5}],
        [{}],
        [{"M": 5, "x": "a"}, {"M": 5, "x": "b"}, {"M": 5, "x": "c"}],
        [{"M": -1}, {"M": 0}, {"M": 7}],
        [{"M": 0.5, "e": 1e-6}, {"M": 2, "e": 1}, {"M": 3.5, "e": 1}],
        [{"M": 1, "N": 4}, {"M": 2, "N": None}, {"M": 3}],
    ],
    ids=["one", "nothing", "equal sizes", "not positive", "floats", "absent"],
)
def test_points_of_every_kind_are_fitted(features: list[dict[str, Literal]]) -> None:
    matrix = by_size(features, lambda p, block: 1.0 + int(p.id) % 2 * (block == 16) * 0.5)
    fitted = fit(matrix, FitOptions(), complexity=replace(LEARNED, price=0.0))
    best = evaluate(ranker(fitted.root, fitted.configs), matrix)
    told_apart = len({tuple(f.items()) for f in features if None not in f.values()}) == len(
        features
    )
    assert best.worst == 1.0 or not told_apart


def test_a_forest_between_the_points_helps_where_waves_matter() -> None:
    """Four kernels of 64 points; the shapes that score a tree are others."""
    scores: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(4):
        source = random.Random(seed)
        shapes = {
            (round(16 * 512 ** source.random()), 64 * round(4 * 32 ** source.random()), 4096)
            for _ in range(192)
        }
        matrix = modelled(tuple(sorted(shapes)))
        training = matrix.only(matrix.points[::3])
        others = matrix.only([p for i, p in enumerate(matrix.points) if i % 3])
        for complexity in (PLAIN, LEARNED):
            fitted = fit(training, FitOptions(), complexity=complexity)
            found = evaluate(ranker(fitted.root, fitted.configs), others)
            scores[complexity.learned].append(math.log(found.geomean))
    assert sum(scores[True]) < 0.9 * sum(scores[False])


def test_cross_validation_considers_forests_from_64_points_on() -> None:
    """Four more complexities, one for each price."""
    features: list[dict[str, Literal]] = [{"M": m + 1} for m in range(64)]
    matrix = by_size(features, lambda p, block: 1.0 + (block == 16) * (int(p.id) > 40))
    options = FitOptions(max_configs=2, folds=2)
    few = fit(matrix.only(matrix.points[:63]), options)
    many = fit(matrix, options)
    assert many.considered == few.considered + 4
    assert evaluate(ranker(many.root, many.configs), matrix).worst == 1.0


@pytest.mark.parametrize(("learned", "groups"), [(True, 24), (False, 30)])
def test_shapes_are_left_out_together_where_a_forest_is_fitted_for_each(
    learned: bool, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 shapes, each of two points that no tree tells apart."""
    shared: list[dict[str, Literal]] = [{"M": i % 30 + 1} for i in range(60)]
    matrix = by_size(shared, lambda p, block: 1.0)
    parts: list[list[Point]] = []

    def spread(work: object, items: list[list[Point]]) -> list[tuple[()]]:
        parts.extend(items)
        return []

    monkeypatch.setattr(evaluation, "spread", spread)
    leave_one_shape_out(matrix, FitOptions(), replace(LEARNED, learned=learned))
    assert len(parts) == groups
    assert sorted(p.id for part in parts for p in part) == [p.id for p in matrix.points]
    for part in parts:
        sizes = [p.features["M"] for p in part]
        assert all(sizes.count(size) == 2 for size in sizes)


@pytest.mark.parametrize("complexity", [None, PLAIN, LEARNED], ids=["chosen", "plain", "learned"])
def test_a_point_that_lacks_a_feature_is_left_out_like_any_other(
    complexity: Complexity | None,
) -> None:
    """All others have N, which decides there: a tree that tested it could not judge this point."""
    features: list[dict[str, Literal]] = [
        {"M": i * 7 % 11 + 1, "N": i * 5 % 9 + 1} for i in range(10)
    ]
    del features[4]["N"]

    def ms(point: Point, block: int) -> float:
        return 1.0 + ((int(point.features.get("N") or 0) > 4) == (block == 16))

    matrix = by_size(features, ms)
    fitted = fit(matrix, FitOptions(folds=10), complexity=complexity)
    assert "N" not in fitted.features
    left_out = leave_one_shape_out(matrix, FitOptions(), complexity or fitted.complexity)
    assert len(left_out.scores) == len(matrix.points)


def test_weights_count_as_often_repeated_points_do() -> None:
    """One point that counts 1e5 times decides for those that are fitted with it."""
    features: list[dict[str, Literal]] = [{"M": m} for m in (8, 9, 10, 11)]
    matrix = by_size(features, lambda p, block: 1.5 if (p.id == "001") == (block == 16) else 1.0)
    heavy = replace(
        matrix, points=tuple(replace(p, weight=1e5 if p.id == "001" else 1) for p in matrix.points)
    )
    one = replace(LEARNED, configs=1)
    assert fit(matrix, FitOptions(), complexity=one).configs == ({"BLOCK": 16},)
    assert fit(heavy, FitOptions(), complexity=one).configs == ({"BLOCK": 64},)
    both = fit(heavy, FitOptions(), complexity=replace(LEARNED, configs=2))
    slowdowns = [s.slowdown or 1.0 for s in evaluate(ranker(both.root, both.configs), heavy).scores]
    assert slowdowns[1] == 1.0
    assert geomean(slowdowns) <= 1.5
