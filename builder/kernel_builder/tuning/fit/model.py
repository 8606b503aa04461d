"""The fit itself: choose configurations, tree and complexity; give a `Tree` root and its record."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_builder.tuning.matrix import Matrix, config_key
from kernelhub.errors import TuningError
from kernelhub.formats.tree import Config, Leaf, Node, Split, features_of

from .ground import Ground
from .grow import Grown
from .loss import make_rows
from .select import select_complexity
from .shaped import Complexity, FitOptions
from .terms import kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A tree without its header, and how it was chosen.

    Attributes:
        root: the tree; leaves index `configs`.
        configs: the configurations that the tree can choose.
        features: the features that the tree tests, each with its kind.
        complexity: the complexity that cross-validation chose.
        considered: number of complexities that were compared.
    """

    root: Node
    configs: tuple[Config, ...]
    features: dict[str, str]
    complexity: Complexity
    considered: int


def fit(matrix: Matrix, options: FitOptions, *, complexity: Complexity | None = None) -> Fitted:
    """Fit a tree to every point of the matrix.

    Args:
        matrix: measurements; held-out points must have been split off already.
        options: limits and goal.
        complexity: complexity, chosen by cross-validation if None.

    Raises:
        TuningError: no point has a configuration that works.
    """
    matrix = _in_order(matrix)
    rows = make_rows(matrix, options.max_slowdown)
    if not rows.features:
        raise TuningError(
            f"{matrix.kernel}: no configuration works on any of {len(matrix.points)} points",
            hint="see the recorded reasons with `kernel-builder evaluate`",
        )
    considered = 1
    if complexity is None:
        complexity, considered = select_complexity(rows, options)
    shape = Ground(rows).shape(complexity, simplest=True)
    grown = shape.tree
    ranked = {leaf.rows: shape.ranking(leaf) for leaf in grown.leaves()}
    return _assemble(grown, ranked, matrix, kinds(rows.features), complexity, considered)


def _in_order(matrix: Matrix) -> Matrix:
    """The order in which things were measured must not show in the tree."""
    return replace(
        matrix,
        points=tuple(sorted(matrix.points, key=lambda p: p.id)),
        configs=tuple(sorted(matrix.configs, key=config_key)),
    )


def _assemble(
    grown: Grown,
    ranked: dict[tuple[int, ...], list[int]],
    matrix: Matrix,
    found_kinds: dict[str, str],
    complexity: Complexity,
    considered: int,
) -> Fitted:
    """Number the configurations by first use, so that equal trees have equal text."""
    order: list[int] = []
    for leaf in grown.leaves():
        first = ranked[leaf.rows][0]
        if first not in order:
            order.append(first)
    number = {column: index for index, column in enumerate(order)}
    # Configurations that no leaf puts first stay as fallbacks, after those that are used.
    for leaf in grown.leaves():
        for column in ranked[leaf.rows]:
            number.setdefault(column, len(number))
    used: set[str] = set()

    def build(node: Grown) -> Node:
        if node.test is None or node.yes is None or node.no is None:
            return Leaf(ranking=tuple(number[c] for c in ranked[node.rows]))
        used.update(features_of(node.test))
        yes, no = build(node.yes), build(node.no)
        return yes if yes == no else Split(test=node.test, yes=yes, no=no)

    root = build(grown)
    return Fitted(
        root=root,
        configs=tuple(matrix.configs[c] for c in sorted(number, key=number.__getitem__)),
        features={name: found_kinds[name] for name in sorted(used)},
        complexity=complexity,
        considered=considered,
    )
