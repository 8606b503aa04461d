"""Masks, online softmax and the rescaling of accumulators for the sm_90 kernel."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .hopper_schedule import ROWS

FLOOR = gl.constexpr(-8.5e37)  # -(2**126): differences of references stay finite


@gluon.jit
def masked(s, first, row, sizes, RIGHT: gl.constexpr):
    """Scores of keys from `first` for 64 rows from `row`, -inf where a row may not see a key."""
    queries, keys, _heads, _group, _tiles_m, _tiles, right = sizes
    LAYOUT: gl.constexpr = s.type.layout
    cols = first + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, LAYOUT))
    keep = (cols < keys)[None, :]
    if RIGHT:
        rows = row + gl.arange(0, s.shape[0], layout=gl.SliceLayout(1, LAYOUT))
        bound = gl.minimum(rows + (keys - queries + right), keys - 1)
        keep = cols[None, :] <= bound[:, None]
    return gl.where(keep, s, float("-inf"))


@gluon.jit
def _by_lane(x):
    """(rows, n) scores as (rows, 4, n / 32, 4, 2): the last but one counts the lanes that share a
    row.

    The other dimensions of a row lie in one thread. Reducing them in steps makes several short
    chains of dependent instructions where one reduction would make a single long one.
    """
    return x.reshape([ROWS, 4, x.shape[1] // 32, 4, 2])


@gluon.jit
def _row_max(s):
    top = gl.max(gl.max(gl.max(_by_lane(s), 2), 3), 1)
    return gl.convert_layout(gl.max(top, 1), gl.SliceLayout(1, s.type.layout))


@gluon.jit
def _lane_sums(p):
    """(rows, 4) sums of each lane's share of a row; the lanes are added once, at a tile's end."""
    return gl.sum(gl.sum(gl.sum(_by_lane(p), 2), 3), 1)


@gluon.jit
def first_softmax(s, scale):
    """Of a tile's first block: (P, row references, sums of each lane).

    References are in the units of the exponents, scores times `scale`. That of a row that sees no
    key is FLOOR: finite, so that no difference of references is a NaN.
    """
    top = gl.maximum(_row_max(s) * scale, FLOOR)
    p = gl.exp2(s * scale - top[:, None])
    return p, top, _lane_sums(p)


@gluon.jit
def next_softmax(s, top, sums, scale):
    """Of a later block: (P, row references, sums of each lane, factor for what came before).

    The reference of a row need not be its maximum, only near it: it moves when the maximum has
    outgrown it by a factor of 2**8, so that what came before seldom needs a new scale. P stays
    below 2**8.
    """
    block_top = _row_max(s) * scale
    new_top = gl.where(block_top - top > 8.0, block_top, top)
    p = gl.exp2(s * scale - new_top[:, None])
    alpha = gl.exp2(top - new_top)
    factor = gl.convert_layout(alpha, gl.SliceLayout(1, sums.type.layout))
    return p, new_top, sums * factor[:, None] + _lane_sums(p), alpha


@gluon.constexpr_function
def _rescale_assembly(count):
    """Multiplies a thread's `count` accumulators, unless all factors of the warp are 1."""
    lines = ["{", ".reg .pred p, q;"]
    lines += [
        f"setp.neu.f32 p, ${2 * count}, 0f3F800000;",
        f"setp.neu.f32 q, ${2 * count + 2}, 0f3F800000;",
    ]
    lines += ["or.pred p, p, q;", "vote.sync.any.pred p, p, 0xffffffff;", "@!p bra.uni DONE;"]
    lines += [f"mul.f32 ${i}, ${i}, ${2 * count + i};" for i in range(count)]
    return "\n".join([*lines, "DONE:", "}"])


@gluon.constexpr_function
def _rescale_constraints(count):
    return ",".join(["=f"] * count + [str(i) for i in range(count)] + ["f"] * count)


@gluon.jit
def rescale(o, alpha):
    LAYOUT: gl.constexpr = o.type.layout
    COUNT: gl.constexpr = o.shape[1] // 2  # elements of a thread: 64 rows on 128 threads
    factor, _ = gl.broadcast(gl.convert_layout(alpha, gl.SliceLayout(1, LAYOUT))[:, None], o)
    return gl.inline_asm_elementwise(
        _rescale_assembly(COUNT), _rescale_constraints(COUNT), [o, factor], gl.float32, False, COUNT
    )
