"""Which configurations are worth compiling: of each group, those that the model ranks best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from kernel_builder.tuning.tpu.model import Units, estimate
from kernel_builder.tuning.tpu.work import Work
from kernelhub.formats.tree import Config

UNROLLED = 1 << 20
"""Elements in straight-line code above which a program is not compiled: it takes minutes. Attention
tiles of twice this hold few more matrix instructions a cycle."""

_UNSERVED = 10.0  # what a launch weighs that none of the chosen fits


def finalists(
    works: Sequence[Mapping[str, Work]],
    configs: Mapping[str, Config],
    units: Units,
    limit: int,
    count: int,
) -> list[Config]:
    """The configurations that together serve all launches best, `count` of each group.

    Args:
        works: of each launch, by configuration key.
        configs: by the same keys.
        limit: bytes of VMEM; what names more is out.
    """
    seconds = [
        {key: estimate(work, units).seconds for key, work in of.items() if _in_reach(work, limit)}
        for of in works
    ]
    groups: dict[str, set[str]] = {}
    for of in works:
        for key, work in of.items():
            groups.setdefault(work.group, set()).add(key)
    chosen: list[str] = []
    for _ in range(count):
        for _, keys in sorted(groups.items()):
            found = _next([table for table in seconds if table], keys, chosen)
            if found is not None:
                chosen.append(found)
    return [configs[key] for key in chosen]


def _in_reach(work: Work, limit: int) -> bool:
    return work.vmem <= limit and work.unrolled <= UNROLLED


def _next(
    tables: Sequence[Mapping[str, float]], group: Set[str], chosen: Sequence[str]
) -> str | None:
    """The configuration of a group that helps those chosen so far most, None where none does.

    A group is thus judged where the others are slow or do not fit; the first of it always comes.
    """
    mine = [key for key in chosen if key in group]
    rest = {key for table in tables for key in table} & group - set(mine)
    if not rest:
        return None
    best = min(
        rest, key=lambda key: (_loss(tables, [*chosen, key]), _loss(tables, [*mine, key]), key)
    )
    if mine and _loss(tables, [*chosen, best]) >= _loss(tables, chosen) - 1e-9:
        return None
    return best


def _loss(tables: Sequence[Mapping[str, float]], keys: Sequence[str]) -> float:
    """The sum over launches of log(best of these / best of all)."""
    total = 0.0
    for table in tables:
        mine = min((table[key] for key in keys if key in table), default=math.inf)
        total += min(_UNSERVED, math.log(mine / min(table.values())))
    return total
