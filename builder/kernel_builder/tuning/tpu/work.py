"""What a launch does, as its author states it: counts that follow from shapes and configuration.

A workload for TPUs may give such a function for each of its tunables:

    @workload(call=..., cases=..., work={"forward.attention": attention_work})

    def attention_work(arguments, config) -> Work: ...

`arguments` are the launch's by name, shapes and dtypes in place of arrays. Nothing in it depends on
a chip or on a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernelhub.formats.tree import Config


@dataclass(frozen=True, slots=True)
class Product:
    """`count` matrix products (m, k) x (k, n), each issued as one by the kernel."""

    m: int
    k: int
    n: int
    count: float = 1.0

    @property
    def flops(self) -> float:
        """Floating-point operations, a multiplication and an addition counted as two."""
        return 2.0 * self.m * self.k * self.n * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One launch with one configuration.

    Attributes:
        group: configurations of a group differ in numbers only; of each group some are compiled.
        program: what the compiled program depends on. Launches with equal `program` differ in how
            often its loops run, and in VMEM by exactly the difference of their `vmem`.
        vmem: bytes of VMEM for all that the kernel names: blocks times their buffers, and scratch.
        unrolled: elements that straight-line code of the program handles; compiling takes longer
            than in proportion to it.
        products: on the matrix units; those that are masked away and computed all the same count.
        vector_ops: elements times operations on the vector units.
        exponentials: elements on the transcendental unit.
        hbm_bytes: moved between HBM and VMEM, behind the computation.
        programs: turns of the kernel's grid.
        turns: of the loop that everything above is spread over: one depends on the one before.
        pieces: of a turn, on which different units may work at the same time; 1 where the matrix
            units wait for the vector units and these for them.
        copies: of a turn in the program's text, such as 2 where it stands with a mask and without;
            each loop with a matrix instruction is then a turn. 0: turns are not known in the text.
        stalls: how often the computation waits for a copy that nothing is computed behind: each
            start of a pipeline inside the kernel.
        stall_bytes: that it waits for, each time.
    """

    group: str = ""
    program: tuple[Any, ...] = ()
    vmem: int = 0
    unrolled: int = 0
    products: tuple[Product, ...] = ()
    vector_ops: float = 0.0
    exponentials: float = 0.0
    hbm_bytes: float = 0.0
    programs: float = 1.0
    turns: float = 0.0
    pieces: float = math.inf
    copies: int = 0
    stalls: float = 0.0
    stall_bytes: float = 0.0

    @property
    def flops(self) -> float:
        """Of the products."""
        return sum(product.flops for product in self.products)


Works: TypeAlias = "Mapping[str, Callable[[Mapping[str, Any], Config], Work]]"


@dataclass(frozen=True, slots=True)
class Tile:
    """How arrays lie in VMEM: rows and lanes of a tile are filled up."""

    itemsize: int
    lanes: int = field(default=128)

    def bytes(self, *shape: int) -> int:
        """Of an array of this shape: 8 rows of 32 bits (16 of 16 bits) by 128 lanes a tile."""
        sizes = [1, *shape]
        rows = 8 * max(1, 4 // self.itemsize)
        sizes[-1] += -sizes[-1] % self.lanes
        sizes[-2] += -sizes[-2] % rows
        total = self.itemsize
        for size in sizes:
            total *= size
        return total
