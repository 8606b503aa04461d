"""The fuzz targets on their seeds, and on a few seeded changes of them."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_changes_of_them(name: str) -> None:
    target, chance = TARGETS[name], random.Random(name)
    for seed in target.seeds:
        target.run(seed)
        for _ in range(40):
            target.run(_changed(seed, chance))


def _changed(seed: bytes, chance: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 1, 1, 8, 64)))
        filler = chance.choice(
            (b"", bytes([chance.randrange(256)]), data[:start][-20:], b"9" * 400)
        )
        data[start:end] = filler
    return bytes(data)
