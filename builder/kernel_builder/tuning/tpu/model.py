"""How long a launch takes on a TPU, from its work, the chip, and what the compiler scheduled.

    time = max(computing, copying) + waiting

computing  with the compiler's schedule, one bundle a cycle: the turns of the work, each as long as
           the loop that holds the matrix instructions (where the text does not show turns: the
           matrix instructions of the work, at the density in which the schedule holds them); and
           what each turn of the grid does besides.
           Without a schedule: the busiest of the units, each at its peak times `EFFICIENCY`, and
           what each turn of the loop waits for itself.
copying    bytes over the HBM's bandwidth times `EFFICIENCY`.
waiting    each start of a pipeline: the latency of a copy, and its bytes.

Peaks are those of JAX's own table of chips. Nothing is fitted to a shape. The constants
below are of the hardware, not of a kernel, and are the same for every chip.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernel_builder.tuning.tpu.schedule import Schedule
from kernel_builder.tuning.tpu.work import Product, Work
from kernelhub.formats.tpu import TpuChip

EFFICIENCY = {"mxu": 0.8, "hbm": 0.8, "vpu": 0.8, "eup": 0.8}
"""What of a unit's peak a well-pipelined kernel reaches. Published kernels on one core of a TPU7x
reach 0.77 of the matrix units' peak (attention, resident) and 0.76 of HBM's (softmax)."""

LATENCY = 1e-6
"""Seconds from asking for a copy from HBM to its first byte, as long as nothing hides it."""

CHAIN = 500
"""Cycles that a turn of a loop takes from its first product to its last beyond what keeps a unit
busy: the units' latencies one after the other, as far as the compiler's schedules show them."""

_ROWS = 16  # of 16 bits in a vector register: what one matrix instruction pushes
_REGISTER = 1024  # elements of 32 bits in a vector register
_VECTOR_SLOTS = 4  # vector instructions in a bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """One core of a chip.

    Attributes:
        clock: cycles a second.
        mxus: matrix units.
        columns: of a matrix unit, and as many rows.
        flops: a second in bfloat16, of all matrix units.
        bandwidth: bytes of HBM a second.
    """

    clock: float
    mxus: int
    columns: int
    flops: float
    bandwidth: float

    @classmethod
    def of(cls, chip: TpuChip) -> Units:
        """Of a chip, as jax's table has it; needs jax, no device."""
        from jax.experimental.pallas import tpu as pltpu

        info = pltpu.get_tpu_info_for_chip(pltpu.ChipVersion(chip.name), 1)
        # A unit of 128 columns takes a row of 16-bit elements a cycle, one of 256 takes two.
        per_cycle = 2 * info.num_mxus * info.mxu_column_size**2 * (info.mxu_column_size // 128)
        return cls(
            clock=info.bf16_ops_per_second / per_cycle,
            mxus=info.num_mxus,
            columns=info.mxu_column_size,
            flops=info.bf16_ops_per_second,
            bandwidth=info.mem_bw_bytes_per_second,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds of one launch on one core, and what they are made of."""

    computing: float
    copying: float
    waiting: float

    @property
    def seconds(self) -> float:
        """In all."""
        return max(self.computing, self.copying) + self.waiting


def estimate(work: Work, units: Units, schedule: Schedule | None = None) -> Estimate:
    """The time of one launch."""
    scheduled = None if schedule is None else _scheduled(work, units, schedule)
    stall = LATENCY + work.stall_bytes / (units.bandwidth * EFFICIENCY["hbm"])
    return Estimate(
        computing=_by_units(work, units) if scheduled is None else scheduled,
        copying=work.hbm_bytes / (units.bandwidth * EFFICIENCY["hbm"]),
        waiting=work.stalls * stall,
    )


def _scheduled(work: Work, units: Units, schedule: Schedule) -> float | None:
    """Computing by the compiler's schedule; None where it does not tell."""
    density = schedule.matmul_density
    if density is None:
        # No matrix instruction: a straight body that each turn of the grid runs once.
        turn = sum(loop.bundles for loop in schedule.loops if loop.depth)
        return None if work.products else work.programs * turn / units.clock
    if work.copies:
        inner, outer = schedule.split()
        return (work.turns * inner / work.copies + work.programs * outer) / units.clock
    pushed = sum(_instructions(product, units) for product in work.products)
    around = sum(loop.bundles for loop in schedule.loops if loop.depth == 1 and not loop.matmuls)
    return (pushed / density + work.programs * around) / units.clock


def _instructions(product: Product, units: Units) -> float:
    """Matrix instructions: a register of rows for each piece of the right-hand side that fits."""
    pieces = math.ceil(product.k / units.columns) * math.ceil(product.n / units.columns)
    return math.ceil(product.m / _ROWS) * pieces * product.count


def _by_units(work: Work, units: Units) -> float:
    per_instruction = _ROWS * 2.0 * units.columns**2 / units.flops
    matrix = sum(_instructions(product, units) for product in work.products) * per_instruction
    vector = work.vector_ops / (_REGISTER * _VECTOR_SLOTS * units.clock)
    transcendental = work.exponentials / (_REGISTER * units.clock)
    chain = work.turns * CHAIN / units.clock
    products = matrix / EFFICIENCY["mxu"]
    elements = max(vector / EFFICIENCY["vpu"], transcendental / EFFICIENCY["eup"])
    # Units work side by side as far as a turn has pieces. In the compiler's schedules what stays
    # alone falls faster than the pieces rise: 949, 767, 740 cycles for 1, 2, 4 blocks of attention.
    alone = min(products, elements) / work.pieces**2
    return chain + max(products, elements) + alone
