"""Which configurations are worth compiling: of each group, those that the model ranks best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernel_builder.tuning.tpu.model import Units, estimate
from kernel_builder.tuning.tpu.work import Work
from kernelhub.formats.tree import Config

UNROLLED = 1 << 19
"""Elements in straight-line code above which a program is not compiled: it takes minutes. Attention
tiles of twice this hold few more matrix instructions a cycle."""


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
    for _, keys in sorted(groups.items()):
        chosen += _cover([{k: s[k] for k in keys & s.keys()} for s in seconds], count)
    return [configs[key] for key in chosen]


def _in_reach(work: Work, limit: int) -> bool:
    return work.vmem <= limit and work.unrolled <= UNROLLED


def _cover(seconds: Sequence[Mapping[str, float]], count: int) -> list[str]:
    """Greedily, the keys that minimise the sum over launches of log(best chosen / best of all)."""
    tables = [table for table in seconds if table]
    chosen: list[str] = []
    candidates = sorted({key for table in tables for key in table})

    def loss(keys: Sequence[str]) -> float:
        total = 0.0
        for table in tables:
            mine = min((table[k] for k in keys if k in table), default=math.inf)
            total += min(10.0, math.log(mine / min(table.values()))) if mine < math.inf else 10.0
        return total

    while len(chosen) < count and len(chosen) < len(candidates):
        rest = [key for key in candidates if key not in chosen]
        best = min(rest, key=lambda key: (loss([*chosen, key]), key))
        if chosen and loss([*chosen, best]) >= loss(chosen) - 1e-9:
            break
        chosen.append(best)
    return chosen
