"""The shapes that flash-attn is measured on, and the figures to reach."""

from __future__ import annotations

Shape = tuple[int, int, int, int]
"""(batch, heads, length, head dim), as many key heads as query heads."""

TUNED: tuple[Shape, ...] = (
    (2, 8, 128, 64), (4, 16, 512, 64), (8, 32, 1024, 128), (1, 16, 1024, 64), (2, 16, 1024, 64), (4,
    16, 1024, 64), (8, 16, 1024, 128), (16, 16, 1024, 128), (32, 16, 1024, 128), (4, 16, 2048, 64),
    (4, 16, 4096, 64), (8, 16, 2048, 128), (8, 16, 4096, 128), (2, 16, 1024, 128), (8, 16, 1024,
    64), (4, 16, 1024, 32), (8, 16, 1024, 256), (1, 24, 4608, 128), (2, 24, 4608, 64),
)  # fmt: skip
HELD_OUT: tuple[Shape, ...] = (
    (2, 12, 768, 64), (16, 16, 512, 64), (6, 16, 1024, 128), (8, 16, 1536, 128), (4, 16, 3072, 128),
    (1, 32, 2048, 128), (2, 16, 8192, 128), (8, 20, 1024, 128), (4, 16, 1024, 96), (12, 16, 256,
    64),
)  # fmt: skip
GRID: tuple[Shape, ...] = tuple(
    (batch, 2048 // dim, length, dim)
    for dim in (64, 128, 256)
    for batch, length in ((32, 512), (16, 1024), (8, 2048), (4, 4096), (2, 8192), (1, 16384))
)
"""The grid of the FlashAttention papers: 16384 tokens, hidden size 2048."""

DECODE: tuple[tuple[int, int], ...] = tuple(
    (batch, keys) for batch in (1, 8, 64) for keys in (1024, 8192, 32768, 131072)
)
"""(batch, keys) of one-token decoding: 32 query heads on 4 key heads of dim 128."""

SMALL: tuple[Shape, ...] = ((1, 2, 40, 32), (1, 1, 64, 16))
SMALL_DECODE: tuple[tuple[int, int], ...] = ((1, 300),)
"""For a rehearsal."""

TARGETS = {
    ("forward", "tuned", "flash"): 1.6,
    ("forward", "held out", "flash"): 1.55,
    ("forward", "tuned", "cudnn"): 1.1,
    ("causal", "tuned", "flash"): 1.3,
    ("causal", "tuned", "cudnn"): 1.1,
    ("forward + backward", "tuned", "flash"): 1.1,
}
"""Geomean speed-ups to reach, by (table, group of shapes, SDPA backend)."""
