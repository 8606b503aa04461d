"""Lists of shapes that subjects share."""

from __future__ import annotations

from kernel_builder.tuning import Case


def rows_and_columns(
    fitted: list[tuple[int, int]], held_out: list[tuple[int, int]], dtype: str = "bfloat16"
) -> list[Case]:
    """Cases of M rows and N columns."""
    return [
        *(Case(M=m, N=n, dtype=dtype) for m, n in fitted),
        *(Case(M=m, N=n, dtype=dtype, held_out=True) for m, n in held_out),
    ]
