"""What a split may test: single features, products and ratios of sizes, sets of categories."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelhub.formats.tree import Categorical, Factor, Literal, Numeric, Tiles, product
from kernelhub.formats.tree_model import MAX_BLOCK

_LEAST_GAP = 1e-9  # relative; closer values are not worth telling apart and rounding could not
_MOST_PRODUCTS = 500  # of two counts; the logs of seven kernels make 12 to 100
_MOST_CATEGORIES = 6  # sets of up to this many values are enumerated, of more only single values


@dataclass(frozen=True, slots=True)
class Term:
    """A numeric quantity `product(left) / product(right)`."""

    left: tuple[Factor, ...]
    right: tuple[Factor, ...] = ()

    @property
    def size(self) -> int:
        return len(self.left) + len(self.right)

    @property
    def is_size(self) -> bool:
        """Whether it is a feature as it stands, no count of tiles."""
        return not self.right and len(self.left) == 1 and isinstance(self.left[0], str)

    def value(self, features: Mapping[str, Literal]) -> float:
        """The quantity at one point."""
        return product(self.left, features) / product(self.right, features)

    def test(self, threshold: float) -> Numeric:
        """The split that says yes up to the threshold."""
        return Numeric(left=self.left, threshold=threshold, right=self.right)


def kinds(features: Sequence[Mapping[str, Literal]]) -> dict[str, str]:
    """Feature name -> "int", "float", "str" or "bool", for features that all rows share.

    A feature whose rows are of mixed kinds (a dimension that is sometimes absent) is left out:
    a tree could not test it on every launch.
    """
    if not features:
        return {}
    shared = set(features[0]).intersection(*features[1:])
    found: dict[str, str] = {}
    for name in sorted(shared):
        values = [row[name] for row in features]
        if all(isinstance(v, bool) for v in values):
            found[name] = "bool"
        elif all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            found[name] = "int"
        elif all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
            found[name] = "float"
        elif all(isinstance(v, str) for v in values):
            found[name] = "str"
    return found


def categories(features: Sequence[Mapping[str, Literal]]) -> list[str]:
    """Features that are strings or truth values, by name."""
    return [name for name, kind in kinds(features).items() if kind in ("str", "bool")]


def numbers(features: Sequence[Mapping[str, Literal]]) -> list[str]:
    """Numbers that take at least two values on these rows, by name; no two say the same."""
    return [str(term.left[0]) for term in single_terms(features)]


def sizes(features: Sequence[Mapping[str, Literal]]) -> list[str]:
    """Those of the numbers that are positive on all rows."""
    return [n for n in numbers(features) if all((row[n] or 0) > 0 for row in features)]  # type: ignore[operator]


def single_terms(features: Sequence[Mapping[str, Literal]]) -> list[Term]:
    """One for each number that takes at least two values on these rows."""
    names = [n for n, kind in kinds(features).items() if kind in ("int", "float")]
    # Several features often say the same (M, x_dim0, a stride): the author's own name is kept.
    return _distinct([Term((n,)) for n in sorted(names, key=_plainness)], features)


def compound_terms(features: Sequence[Mapping[str, Literal]]) -> list[Term]:
    """Single ones, then products and ratios of sizes; no two alike."""
    singles, names = single_terms(features), sizes(features)
    terms = [*singles, *(Term(pair) for pair in itertools.combinations(names, 2))]
    terms += [Term((a,), (b,)) for a, b in itertools.combinations(names, 2)]
    terms += [Term(triple) for triple in itertools.combinations(names, 3)]
    return _distinct(terms, features)


def tile_terms(
    features: Sequence[Mapping[str, Literal]], blocks: Sequence[frozenset[int]]
) -> list[Term]:
    """Compound ones, then counts of tiles, how full the tiles are, and products of two counts.

    The products are left out where there would be too many: so many say little, and take minutes.

    Args:
        blocks: of each configuration that may be chosen, see `loss.Rows`. What all of them have in
            common tells nothing of how one differs from another.
    """
    common = frozenset.intersection(*blocks)
    own = [sorted(b for b in config - common if 1 < b <= MAX_BLOCK) for config in blocks]
    known = kinds(features)
    whole = [n for n in sizes(features) if known[n] == "int"]
    terms = compound_terms(features)
    for size, block in itertools.product(whole, sorted({b for config in own for b in config})):
        terms += [Term((Tiles(size, block),)), Term((size,), (Tiles(size, block),))]
    pairs = sorted({pair for config in own for pair in itertools.product(config, repeat=2)})
    products = [
        Term((Tiles(a, x), Tiles(b, y)))
        for (a, b), (x, y) in itertools.product(itertools.combinations(whole, 2), pairs)
    ]
    terms += products if len(products) <= _MOST_PRODUCTS else []
    return _distinct(terms, features)


def _plainness(name: str) -> tuple[bool, bool, str]:
    return ("_dim" in name, "stride" in name, name)


def _distinct(terms: Sequence[Term], features: Sequence[Mapping[str, Literal]]) -> list[Term]:
    """Drop terms that order the rows as an earlier, simpler term does with the same gaps."""
    seen: set[tuple[float, ...]] = set()
    kept: list[Term] = []
    for term in terms:
        values = [term.value(row) for row in features]
        if not all(math.isfinite(v) for v in values) or len(set(values)) < 2:
            continue
        signature = tuple(float(f"{v / values[0]:.9g}") for v in values) if values[0] else None
        if signature is None or signature not in seen:
            kept.append(term)
            if signature is not None:
                seen.add(signature)
    return kept


def categorical_tests(features: Sequence[Mapping[str, Literal]]) -> list[Categorical]:
    """Sets of values of string and boolean features, each partition once."""
    tests: list[Categorical] = []
    for name in categories(features):
        present = {row[name] for row in features}
        values = sorted(v for v in present if isinstance(v, (str, bool)))
        largest = len(values) // 2 if len(values) <= _MOST_CATEGORIES else 1
        tests += [
            Categorical(feature=name, values=chosen)
            for size in range(1, largest + 1)
            for chosen in itertools.combinations(values, size)
            # A set and its complement split alike: of two halves keep the one with the first value.
            if 2 * size < len(values) or values[0] in chosen
        ]
    return tests


def threshold_between(low: float, high: float, blocks: Iterable[int] = ()) -> float | None:
    """Where to divide two observed values: at a block's size, else near their geometric middle.

    A kernel's cost jumps where a size passes the block that held all of it: N = 4097 needs two
    blocks of 4096. So if such a size lies in `low <= block < high`, the least one is the threshold
    (`N <= 4096`). Otherwise it is a short number strictly between: sizes matter by ratio, so the
    middle of 2048 and 4096 is 2896; where a value is not positive the arithmetic middle is taken.
    None where the two are too close to tell apart.
    """
    held = [block for block in blocks if low <= block < high]
    if held:
        return min(held)
    if high - low <= _LEAST_GAP * max(abs(low), abs(high)):
        return None
    middle = math.sqrt(low) * math.sqrt(high) if low > 0 else low / 2 + high / 2
    for digits in (2, 3, 4, 6, 9):
        short = float(f"{middle:.{digits}g}")
        # Rounding may move the threshold, but by no more than a tenth of the gap.
        if low < short < high and abs(short - middle) <= (high - low) / 10:
            return int(short) if short.is_integer() and abs(short) < 2**53 else short
    return middle
