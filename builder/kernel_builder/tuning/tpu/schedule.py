"""What libtpu's compiler has scheduled: its final bundles, loop by loop.

A TPU core issues one bundle of instructions a cycle, in the order of the text, so the compiler's
schedule is its own estimate of the time: a loop whose body is 800 bundles takes 800 cycles a turn,
plus what it waits for memory. Register spills, latencies and the overlap of matrix and vector units
are all in it.

The text is libtpu's dump (`--xla_jf_dump_llo_text`), one bundle a line:

     0xbf LB: >> { %v1 = vmatmul.mubr.bf16 ...  ;;  %v2 = ... }

with one `>` for each loop around it, and `LB` where a loop's body begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_BUNDLE = re.compile(r"\s*(?:0x[0-9a-f]+|0)\s+([A-Z]{2})?\s*:\s*(>*)\s*\{")
_MATMUL = re.compile(r"\bvmatmul\b")
_KERNEL = re.compile(r"entry bundle: \S+ = custom-call\(")  # what a Pallas kernel became


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, or what is outside of any.

    Attributes:
        depth: loops around and including it; 0 is the program itself.
        bundles: of its body, without those of the loops inside.
        matmuls: instructions that push rows through a matrix unit, among them.
    """

    depth: int
    bundles: int
    matmuls: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """The loops of a program in the order of the text."""

    loops: tuple[Loop, ...]

    @property
    def bundles(self) -> int:
        """Of the whole program, each counted once."""
        return sum(loop.bundles for loop in self.loops)

    @property
    def matmul_density(self) -> float | None:
        """Matrix instructions a cycle where there are any; None for a program without."""
        holding = [loop for loop in self.loops if loop.matmuls]
        if not holding:
            return None
        return sum(loop.matmuls for loop in holding) / sum(loop.bundles for loop in holding)

    def split(self) -> tuple[int, int]:
        """Bundles of the loops at the depth of the matrix instructions, and of those around them;
        the program itself belongs to neither."""
        depth = min((loop.depth for loop in self.loops if loop.matmuls), default=1)
        inner = sum(loop.bundles for loop in self.loops if loop.depth >= max(depth, 1))
        return inner, sum(loop.bundles for loop in self.loops if 1 <= loop.depth < depth)

    def to_json(self) -> list[list[int]]:
        """Plain JSON; `from_json` is its inverse."""
        return [[loop.depth, loop.bundles, loop.matmuls] for loop in self.loops]

    @classmethod
    def from_json(cls, rows: Iterable[Iterable[int]]) -> Schedule:
        """The schedule that `to_json` wrote down."""
        return cls(tuple(Loop(*row) for row in rows))


def read_schedule(lines: Iterable[str]) -> Schedule | None:
    """The schedule in a dump of final bundles; None where it is that of no Pallas kernel."""
    kernel = False
    counts: list[list[int]] = []
    open_loops: list[list[int]] = []  # the innermost is the last
    for line in lines:
        found = _BUNDLE.match(line)
        kernel = kernel or _KERNEL.search(line) is not None
        if found is None:
            continue
        depth = len(found[2])
        begins = found[1] == "LB"
        while open_loops and (open_loops[-1][0] > depth or (begins and open_loops[-1][0] == depth)):
            open_loops.pop()
        if not open_loops or open_loops[-1][0] < depth:
            counts.append([depth, 0, 0])
            open_loops.append(counts[-1])
        open_loops[-1][1] += 1
        open_loops[-1][2] += len(_MATMUL.findall(line))
    return Schedule(tuple(Loop(*count) for count in counts)) if kernel else None
