"""The fit: what it promises on any measurements, and how good it is on modelled ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_samples import context, modelled

from kernel_builder.tuning.build import build_tree
from kernel_builder.tuning.evaluate import evaluate, leave_one_shape_out, ranker
from kernel_builder.tuning.fit import Complexity, FitOptions, Fitted, fit
from kernel_builder.tuning.fit.loss import blurred, make_rows
from kernel_builder.tuning.fit.terms import threshold_between
from kernel_builder.tuning.log import Measurements
from kernel_builder.tuning.matrix import Cell, Matrix, Point, config_key
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Leaf, Node, Numeric, Split, product
from kernelhub.formats.tree_compile import holds

LAVISH = Complexity(configs=8, compound=True, price=0.0, blur=0.0)
BLURRED = Complexity(configs=8, compound=True, price=0.0, blur=1.0)
LEARNED = Complexity(configs=3, compound=True, price=0.0, blur=0.0, learned=True)
SPARE = Complexity(configs=2, compound=False, price=0.3, blur=0.0)
TIMES = st.one_of(st.none(), st.floats(0.001, 100))  # None: the configuration fails there


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    """Up to 9 points and 5 configurations with arbitrary times, failures and weights."""
    count = draw(st.integers(1, 5))
    configs = tuple({"BLOCK": 1 << index} for index in range(count))
    shapes = draw(
        st.lists(
            st.tuples(st.integers(1, 4096), st.integers(-3, 3), st.sampled_from(["a", "b", "c"])),
            min_size=1, max_size=9, unique=True,
        )
    )  # fmt: skip
    points = tuple(
        Point(
            id=str(index),
            features={"M": m, "shift": shift, "dtype": dtype},
            weight=draw(st.sampled_from([0.001, 1.0, 50.0])),
        )
        for index, (m, shift, dtype) in enumerate(shapes)
    )
    cells = {}
    for point, config in itertools.product(points, configs):
        ms = draw(TIMES)
        cells[point.id, config_key(config)] = Cell(ms=ms, reason=None if ms else "fault")
    return Matrix(kernel="k", points=points, configs=configs, cells=cells)


def nodes(node: Node, points: list[Point]) -> Iterator[tuple[Node, list[Point]]]:
    """Every node with the points that reach it."""
    yield node, points
    if isinstance(node, Split):
        yield from nodes(node.yes, [p for p in points if holds(node.test, p.features)])
        yield from nodes(node.no, [p for p in points if not holds(node.test, p.features)])


def works(matrix: Matrix) -> bool:
    return any(matrix.best(point) is not None for point in matrix.points)


def cost(matrix: Matrix, fitted: Fitted) -> float:
    """Weighted log slowdown on the points where the choice works."""
    scores = evaluate(ranker(fitted.root, fitted.configs), matrix).known
    finite = [s for s in scores if s.slowdown is not None and math.isfinite(s.slowdown)]
    return sum(s.point.weight * math.log(s.slowdown or 1.0) for s in finite)


@given(matrices(), st.sampled_from([LAVISH, SPARE, BLURRED, LEARNED]))
def test_a_failing_configuration_is_never_chosen_where_one_of_the_tree_works(
    matrix: Matrix, complexity: Complexity
) -> None:
    if not works(matrix):
        with pytest.raises(TuningError, match="no configuration works"):
            fit(matrix, FitOptions(), complexity=complexity)
        return
    fitted = fit(matrix, FitOptions(), complexity=complexity)
    rank = ranker(fitted.root, fitted.configs)
    for point in matrix.points:
        chosen = matrix.slowdown(point, rank(point.features)[0])
        others = [matrix.slowdown(point, config) for config in fitted.configs]
        if any(other is not None and math.isfinite(other) for other in others):
            assert chosen is not None
            assert math.isfinite(chosen)


@given(matrices())
def test_a_tree_costs_no_more_than_the_best_single_configuration(matrix: Matrix) -> None:
    if not works(matrix) or any(c.ms is None for c in matrix.cells.values()):
        return
    options = FitOptions(max_slowdown=1e9)  # plain log slowdown, no extra charge
    single = fit(
        matrix, options, complexity=Complexity(configs=1, compound=False, price=0.0, blur=0.0)
    )
    tree = fit(matrix, options, complexity=LAVISH)
    assert cost(matrix, tree) <= cost(matrix, single) + 1e-6


@given(matrices(), st.integers(1, 4), st.booleans())
def test_limits_and_thresholds(matrix: Matrix, limit: int, learned: bool) -> None:
    if not works(matrix):
        return
    complexity = replace(LEARNED, configs=limit) if learned else None
    fitted = fit(matrix, FitOptions(max_configs=limit), complexity=complexity)
    assert 1 <= len(fitted.configs) <= limit
    working = [p for p in matrix.points if matrix.best(p) is not None]
    for node, points in nodes(fitted.root, working):
        if isinstance(node, Leaf):
            assert sorted(node.ranking) == list(range(len(fitted.configs)))
        elif isinstance(node.test, Numeric):
            left, right = node.test.left, node.test.right
            values = [product(left, p.features) / product(right, p.features) for p in points]
            blocks = {config["BLOCK"] for config in matrix.configs}
            size = isinstance(left[0], str) and (len(left), len(right)) == (1, 0)
            assert node.test.threshold not in values or (size and node.test.threshold in blocks)
            # A forest tells of points between, of which all measured ones may be on one side.
            assert learned or min(values) <= node.test.threshold < max(values)


@settings(max_examples=settings.default.max_examples // 2)
@given(matrices(), st.sampled_from([None, LEARNED]))
def test_the_same_measurements_give_the_same_tree_in_any_order(
    matrix: Matrix, complexity: Complexity | None
) -> None:
    if not works(matrix):
        return
    turned = replace(matrix, points=matrix.points[::-1], configs=matrix.configs[::-1])
    once, again = (fit(m, FitOptions(), complexity=complexity) for m in (matrix, turned))
    assert once == again


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_a_threshold_lies_strictly_between(a: float, b: float) -> None:
    low, high = sorted((a, b))
    threshold = threshold_between(low, high)
    assert threshold is None or low < threshold < high


def test_thresholds_of_sizes_are_geometric_and_short() -> None:
    assert threshold_between(2048, 4096) == 2900
    assert threshold_between(2, 3) == 2.4


def test_a_threshold_is_at_the_size_of_a_block_that_lies_there() -> None:
    assert threshold_between(4096, 8192, {4096, 64}) == 4096
    assert threshold_between(768, 4096, {1024, 2048}) == 1024
    assert threshold_between(2048, 4096, {4096, 1}) == 2900


def test_sizes_that_need_a_second_block_are_chosen_for_as_the_next_larger_size() -> None:
    points = tuple(Point(id=str(n), features={"N": n}) for n in (1024, 2048, 4096, 8192))
    configs = ({"BLOCK": 4096, "num_warps": 4}, {"BLOCK": 8192, "num_warps": 4})

    def ms(n: int, block: int) -> float:  # every block costs its whole size
        return math.ceil(n / block) * block / 1000 + (n > block)

    cells = {
        (p.id, config_key(c)): Cell(ms=ms(int(p.id), c["BLOCK"])) for p in points for c in configs
    }
    matrix = Matrix(kernel="k", points=points, configs=configs, cells=cells)
    exact = Complexity(configs=2, compound=False, price=0.0, blur=0.0)
    rank = ranker(*_parts(fit(matrix, FitOptions(), complexity=exact)))
    for n in (4095, 4096):
        assert rank({"N": n})[0] == configs[0]
    for n in (4097, 5120):
        assert rank({"N": n})[0] == configs[1]


def test_what_the_author_prunes_gives_way_to_the_next_in_rank_as_at_dispatch() -> None:
    point = Point(id="64", features={"M": 64})
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    cells = {
        ("64", config_key(configs[0])): Cell(ms=1.0, pruned=True),
        ("64", config_key(configs[1])): Cell(ms=2.0),
    }
    matrix = Matrix(kernel="k", points=(point,), configs=configs, cells=cells)
    (score,) = evaluate(lambda _: configs, matrix).scores
    assert (score.config, score.slowdown) == (configs[1], 1.0)


def test_a_modelled_kernel_is_chosen_well_on_shapes_that_were_left_out() -> None:
    matrix = modelled(
        tuple(itertools.product((1, 16, 128, 512, 2048, 8192), (512, 2048, 8192), (512, 4096)))
    )
    fitted = fit(matrix, FitOptions())
    left_out = leave_one_shape_out(matrix, FitOptions(), fitted.complexity)
    assert len(left_out.scores) == 36
    assert left_out.geomean < 1.02
    assert evaluate(ranker(fitted.root, fitted.configs), matrix).worst < 1.1


def test_dtypes_are_features() -> None:
    points = tuple(
        Point(id=f"{m}{dtype}", features={"M": m, "x_dtype": dtype})
        for m in (64, 128, 256, 512)
        for dtype in ("float16", "float32")
    )
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    cells = {
        (p.id, config_key(c)): Cell(
            ms=1.0 if (c["BLOCK"] == 1) == (p.features["x_dtype"] == "float16") else 2.0
        )
        for p in points
        for c in configs
    }
    matrix = Matrix(kernel="k", points=points, configs=configs, cells=cells)
    fitted = fit(matrix, FitOptions())
    assert fitted.features == {"x_dtype": "str"}
    assert evaluate(ranker(fitted.root, fitted.configs), matrix).worst == 1.0


def test_differences_within_the_measurement_error_do_not_make_a_split() -> None:
    points = tuple(Point(id=str(m), features={"M": m}) for m in (64, 128, 256, 512))
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    cells = {
        (p.id, config_key(c)): Cell(ms=1.0 + 0.01 * ((i + c["BLOCK"]) % 2), error=0.01)
        for i, p in enumerate(points)
        for c in configs
    }
    fitted = fit(Matrix(kernel="k", points=points, configs=configs, cells=cells), FitOptions())
    assert isinstance(fitted.root, Leaf)


def test_what_the_author_prunes_is_not_chosen_where_it_is_pruned() -> None:
    points = tuple(Point(id=str(m), features={"M": m}) for m in (64, 128))
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    cells = {
        ("64", config_key(configs[0])): Cell(ms=2.0),
        ("64", config_key(configs[1])): Cell(ms=1.0, pruned=True),
        ("128", config_key(configs[0])): Cell(ms=2.0),
        ("128", config_key(configs[1])): Cell(ms=1.0),
    }
    matrix = Matrix(kernel="k", points=points, configs=configs, cells=cells)
    exact = Complexity(configs=2, compound=False, price=0.0, blur=0.0)
    rank = ranker(*_parts(fit(matrix, FitOptions(), complexity=exact)))
    assert rank({"M": 64})[0] == configs[0]
    assert rank({"M": 128})[0] == configs[1]


def test_luck_at_one_size_does_not_outweigh_the_sizes_around_it() -> None:
    """Where A is 5 % faster at one size and B at those close by, B is taken for all of them."""
    sizes = (1000, 1008, 1016, 1024, 1032, 1040, 4000)
    points = tuple(Point(id=str(n), features={"N": n}) for n in sizes)
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    a, b = map(config_key, configs)
    cells = {(p.id, a): Cell(ms=1.05) for p in points} | {(p.id, b): Cell(ms=1.0) for p in points}
    cells |= {("1000", a): Cell(ms=1.0), ("1000", b): Cell(ms=1.05)}
    matrix = Matrix(kernel="k", points=points, configs=configs, cells=cells)

    def choice(blur: float) -> int:
        complexity = Complexity(configs=2, compound=False, price=0.0, blur=blur)
        rank = ranker(*_parts(fit(matrix, FitOptions(), complexity=complexity)))
        return rank({"N": 1000})[0]["BLOCK"]  # type: ignore[return-value]

    assert (choice(0.0), choice(1.0)) == (1, 2)


def test_a_choice_that_suits_a_stretch_in_the_middle_alone_is_found() -> None:
    """No single cut gains anything there: both of its sides go on as before."""
    sizes = (100, 200, 300, 400, 1000, 2000, 3000, 4000, 6000, 7000, 8000)
    points = tuple(Point(id=str(n), features={"N": n, "x": n % 7}) for n in sizes)
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    a, b = map(config_key, configs)
    middle = [n for n in sizes if 500 < n < 3500]
    cells = {(str(n), a): Cell(ms=2.0 if n in middle else 1.0) for n in sizes}
    cells |= {(str(n), b): Cell(ms=1.0 if n in middle else 2.0) for n in sizes}
    matrix = Matrix(kernel="k", points=points, configs=configs, cells=cells)
    exact = Complexity(configs=2, compound=False, price=0.0, blur=0.0)
    fitted = fit(matrix, FitOptions(), complexity=exact)
    assert evaluate(ranker(fitted.root, fitted.configs), matrix).worst == 1.0
    assert fitted.features == {"N": "int"}


def test_the_test_that_gains_most_at_the_root_does_not_hide_a_simpler_tree() -> None:
    """A holds up to S = 15000 where D is small and up to 7000 where it is not: three tests say so,
    the first of which, D, gains less than S does."""
    shapes = [
        (s, d)
        for d in (64, 128, 256)
        for s in (2048, 4096, 8192, 14336, 16384, 28672, 32768, 49152, 57344, 65536)
    ] + [(6144, 256), (7168, 256)]
    points = tuple(Point(id=f"{s} {d}", features={"S": s, "D": d}) for s, d in shapes)
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    a, b = map(config_key, configs)
    held = {f"{s} {d}" for s, d in shapes if s < (15000 if d < 200 else 7000)}
    cells = {(p.id, a): Cell(ms=1.0) if p.id in held else Cell(reason="fault") for p in points}
    cells |= {(p.id, b): Cell(ms=1.4 if p.id in held else 1.0) for p in points}
    matrix = Matrix(kernel="k", points=points, configs=configs, cells=cells)
    fitted = fit(matrix, FitOptions())
    rank = ranker(fitted.root, fitted.configs)
    assert sum(isinstance(node, Split) for node, _ in nodes(fitted.root, [])) <= 3
    assert rank({"S": 7168, "D": 128})[0] == {"BLOCK": 1}
    assert rank({"S": 7168, "D": 256})[0] == {"BLOCK": 2}


def test_a_failure_stays_one_whatever_the_points_around_it_say() -> None:
    points = tuple(Point(id=str(n), features={"N": n}) for n in (1000, 1001))
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    a, b = map(config_key, configs)
    cells = {(p.id, c): Cell(ms=1.0) for p in points for c in (a, b)}
    cells["1000", a] = Cell(reason="fault")
    rows = make_rows(Matrix(kernel="k", points=points, configs=configs, cells=cells), goal=1.05)
    assert blurred(rows, 1.0).loss == rows.loss


def _parts(fitted: Fitted) -> tuple[Node, tuple[dict[str, object], ...]]:
    return fitted.root, fitted.configs  # type: ignore[return-value]


@pytest.mark.parametrize("odd", [None, "auto", "absent"])
def test_what_a_held_out_point_cannot_be_asked_is_not_tested(odd: str | None) -> None:
    """A tree has to answer every launch: N is absent from one, or of another kind there."""
    sizes = [(m, n) for m in (16, 64, 256) for n in (32, 128, 512, 2048)]
    points = [Point(id=f"{m} {n}", features={"M": m, "N": n}) for m, n in sizes]
    features = {"M": 64} if odd == "absent" else {"M": 64, "N": odd}
    points.append(Point(id="odd", features=features, held_out=True))
    configs = ({"BLOCK": 1}, {"BLOCK": 2})
    cells = {}
    for point in points:
        small = point.features.get("N") in (32, 128)
        for config, ms in zip(configs, (1.0, 2.0) if small else (2.0, 1.0), strict=True):
            cells[point.id, config_key(config)] = Cell(ms=ms)
    matrix = Matrix(kernel="k", points=tuple(points), configs=configs, cells=cells)
    measured = Measurements(Path("k.jsonl"))
    measured.matrix = lambda context: matrix  # type: ignore[method-assign]
    assert "N" not in build_tree(measured, context(), FitOptions()).tree.features
    asks = Split(Numeric(("N",), 100), Leaf((0,)), Leaf((1,)))
    with pytest.raises(TuningError, match="cannot be asked"):
        evaluate(ranker(asks, configs), matrix)
