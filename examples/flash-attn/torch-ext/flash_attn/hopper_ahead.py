"""A consumer that computes the scores of the next block beside the softmax of this one (sm_90).

While the softmax of block j runs, the output of block j - 1 and the scores of block j + 1 are under
way, so that no softmax waits for scores: that counts where it takes as long as both products, at
small head dims. It takes the registers of a second block of scores, and one more K block.

All tiles of the program are one stream of blocks, two a turn of the loop, each with scores of its
own, because scores that moved from one register to another would cost an instruction each. If the
number of blocks is odd, one past the end is computed from what lies in shared memory, and
forgotten.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from .hopper_products import finish_rows, issue_output, issue_scores, wait_for_values, write
from .hopper_schedule import ROWS, first_place, next_place, tile, tile_count
from .hopper_softmax import masked, next_softmax, no_rows, rescale


@gluon.jit
def _next_block(
    now, stride, sizes, HEIGHT: gl.constexpr, BLOCK_N: gl.constexpr, RIGHT: gl.constexpr,
    WHO: gl.constexpr,
):  # fmt: skip
    """The block that follows block (turn, place, head, batch, row, number, whether its tile's
    first): one number less, or the next tile's last."""
    turn, place, head, batch, row, block, _first = now
    first = block == 0
    if first:
        turn += 1
        place, head, batch = next_place(turn, (place, head, batch), stride, sizes, RIGHT)
        begin, blocks = tile(turn, (place, head, batch), sizes, HEIGHT, BLOCK_N, RIGHT)
        row = begin + WHO * ROWS
        block = blocks
    return turn, place, head, batch, row, block - 1, first


@gluon.jit
def _block(
    s, o, top, sums, factors, step, before, now, then, count, descs, buffers, barriers, sizes, lse,
    scale, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    """Block number `step`: `s` are its scores, `o` the output of the block before, still under way,
    `then` the block after it, `before` the (place, head, batch, row) of the tile before. Returns
    the scores of `then`, and the rest."""
    q_smem, k_smem, v_smem, _o_smem = buffers
    q_full, k_full, k_empty, _v_full, v_empty = barriers
    queries, keys, _heads, _group, _tiles_m, _tiles, right = sizes
    K_STAGES: gl.constexpr = k_smem.shape[0]
    STAGES: gl.constexpr = v_smem.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    BLOCK_D: gl.constexpr = q_smem.shape[4]
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    turn, _place, _head, _batch, row, block, first = now
    turn_next = then[0]
    alive = turn < count

    more = turn_next < count
    q_place = (turn_next % 2) * CONSUMERS + WHO
    mbarrier.wait(q_full.index(q_place), (turn_next // 2) & 1, pred=more & then[6])
    mbarrier.wait(k_full.index((step + 1) % K_STAGES), ((step + 1) // K_STAGES) & 1, pred=more)
    q = q_smem.index(q_place).reshape([ROWS, BLOCK_D])
    s_next = issue_scores(q, step + 1, buffers)

    if first & (turn > 0):
        factors = finish_rows(
            top, sums, (before[0], before[1], before[2]), before[3], sizes, lse, scale
        )
    top = gl.where(first, float("-inf"), top)
    sums = gl.where(first, 0.0, sums)
    ragged = first & (keys % BLOCK_N != 0)
    if RIGHT:
        unmasked = gl.minimum(
            keys // BLOCK_N, gl.maximum(row + 1 + keys - queries + right, 0) // BLOCK_N
        )
        ragged = block >= unmasked
    if ragged:
        s = masked(s, block * BLOCK_N, row, sizes, RIGHT)
    p, top, sums, alpha = next_softmax(s, top, sums, scale)
    p_op = gl.convert_layout(p.to(q_smem.dtype), gl.DotOperandLayout(0, O_LAYOUT, 2))
    # This wait stands here, before that for the product, because it ends a basic block.
    wait_for_values(step, buffers, barriers, alive)
    # All products at once: the assembler cannot tell registers that one of two still writes.
    o, s_next = warpgroup_mma_wait(0, [o, s_next])
    mbarrier.arrive(v_empty.index((step - 1) % STAGES), pred=alive & (step > 0))
    mbarrier.arrive(k_empty.index((step + 1) % K_STAGES), pred=more)
    if first & (turn > 0):
        write(o, factors, (before[0], before[1], before[2]), before[3], descs, buffers, WHO)
    # The first product of a tile ignores what stands in the accumulators.
    o = rescale(o, gl.where(first, 1.0, alpha))
    o = issue_output(p_op, o, step, buffers, first == 0)
    return s_next, o, top, sums, factors


@gluon.jit
def consume_ahead(
    descs, buffers, barriers, sizes, lse, scale,
    CONSUMERS: gl.constexpr, RIGHT: gl.constexpr, WHO: gl.constexpr,
):  # fmt: skip
    q_smem, k_smem, _v_smem, _o_smem = buffers
    q_full, k_full, k_empty, _v_full, _v_empty = barriers
    _queries, _keys, _heads, _group, _tiles_m, tiles, _right = sizes
    BLOCK_N: gl.constexpr = k_smem.shape[3]
    BLOCK_D: gl.constexpr = q_smem.shape[4]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    HEIGHT: gl.constexpr = ROWS * CONSUMERS

    count = tile_count(tiles, RIGHT)
    at, stride = first_place(sizes, RIGHT)
    place, head, batch = at
    begin, blocks = tile(0, at, sizes, HEIGHT, BLOCK_N, RIGHT)
    row = begin + WHO * ROWS
    now = (gl.to_tensor(0), place, head, batch, row, blocks - 1, blocks > 0)
    before = (place, head, batch, row)
    mbarrier.wait(q_full.index(WHO), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = issue_scores(q_smem.index(WHO).reshape([ROWS, BLOCK_D]), 0, buffers)
    s = warpgroup_mma_wait(0, [s])
    mbarrier.arrive(k_empty.index(0))
    o = warpgroup_mma_init(gl.zeros([ROWS, BLOCK_D], gl.float32, layout=O_LAYOUT))
    top, sums = no_rows(S_LAYOUT, BLOCK_N)
    factors = top
    step = gl.to_tensor(0)
    alive = count > 0
    while now[0] < count:
        then = _next_block(now, stride, sizes, HEIGHT, BLOCK_N, RIGHT, WHO)
        s_other, o, top, sums, factors = _block(
            s, o, top, sums, factors, step, before, now, then, count, descs, buffers, barriers,
            sizes, lse, scale, CONSUMERS, RIGHT, WHO,
        )  # fmt: skip
        before = (now[1], now[2], now[3], now[4])
        alive = then[0] < count
        now = _next_block(then, stride, sizes, HEIGHT, BLOCK_N, RIGHT, WHO)
        s, o, top, sums, factors = _block(
            s_other, o, top, sums, factors, step + 1, before, then, now, count, descs, buffers,
            barriers, sizes, lse, scale, CONSUMERS, RIGHT, WHO,
        )  # fmt: skip
        before = (then[1], then[2], then[3], then[4])
        step += 2
    o = warpgroup_mma_wait(0, [o])
    if alive:  # else the block past the end has done it
        at = (before[0], before[1], before[2])
        factors = finish_rows(top, sums, at, before[3], sizes, lse, scale)
        write(o, factors, at, before[3], descs, buffers, WHO)
    tma.store_wait(0)
