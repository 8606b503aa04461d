"""Which tiles a program computes, and the warps that fetch their Q, K and V (sm_90)."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

# Triton 3.9 has other names for them.
load_block = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_block = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
meet = getattr(gl, "thread_barrier", None) or gl.barrier
ROWS = gl.constexpr(64)  # query rows of a consumer: one wgmma is 64 rows tall


@gluon.jit
def slot(step, STAGES: gl.constexpr):
    """step % STAGES. Steps are never negative, which the compiler does not know."""
    at = step % STAGES
    if (STAGES & (STAGES - 1)) == 0:
        at = step & (STAGES - 1)
    return at


@gluon.jit
def phase(step, STAGES: gl.constexpr):
    """step // STAGES % 2: the phase of its slot's mbarrier that a step completes."""
    turn = step // STAGES
    if STAGES == 2:
        turn = step >> 1
    if STAGES == 4:
        turn = step >> 2
    return turn & 1


@gluon.jit
def tile_count(tiles, RIGHT: gl.constexpr):
    """How many tiles this program computes."""
    PAIR: gl.constexpr = 2 if RIGHT else 1
    mine = gl.cdiv(tiles // PAIR - gl.program_id(0), gl.num_programs(0))
    return mine * PAIR


@gluon.jit
def _place(number, sizes, RIGHT: gl.constexpr):
    """Work item `number` as (place among the tiles of its head, head, batch)."""
    _queries, _keys, heads, _group, tiles_m, _tiles, _right = sizes
    length = tiles_m // 2 if RIGHT else tiles_m
    return number % length, number // length % heads, number // length // heads


@gluon.jit
def first_place(sizes, RIGHT: gl.constexpr):
    """Where the program starts, and what `next_place` adds from one work item to the next."""
    at = _place(gl.program_id(0), sizes, RIGHT)
    return at, _place(gl.num_programs(0), sizes, RIGHT)


@gluon.jit
def next_place(turn, at, step, sizes, RIGHT: gl.constexpr):
    """The place of tile number `turn` after that of tile `turn - 1`: sums with carries, because
    divisions would stand in the way of the next tile's products."""
    _queries, _keys, heads, _group, tiles_m, _tiles, _right = sizes
    length = tiles_m // 2 if RIGHT else tiles_m
    place, head, batch = at
    place_step, head_step, batch_step = step
    place_next = place + place_step
    carry = (place_next >= length).to(gl.int32)
    place_next -= carry * length
    head_next = head + head_step + carry
    carry = (head_next >= heads).to(gl.int32)
    head_next -= carry * heads
    batch_next = batch + batch_step + carry
    if RIGHT:
        same = turn % 2 != 0
        place_next = gl.where(same, place, place_next)
        head_next = gl.where(same, head, head_next)
        batch_next = gl.where(same, batch, batch_next)
    return place_next, head_next, batch_next


@gluon.jit
def tile(turn, at, sizes, HEIGHT: gl.constexpr, BLOCK_N: gl.constexpr, RIGHT: gl.constexpr):
    """The program's tile number `turn`, at `at`: (first row, blocks of keys, at least 1).

    The rows of one head are neighbours, in time too, so that they share K and V in L2. With a
    diagonal a program takes them in pairs, the longest with the shortest, which makes all pairs of
    a head equally long; `tiles_m` is even then, and a last tile past the end costs one block.
    """
    queries, keys, _heads, _group, tiles_m, _tiles, right = sizes
    place, _head, _batch = at
    if RIGHT:
        row = gl.where(turn % 2 == 0, tiles_m - 1 - place, place) * HEIGHT
        end = gl.minimum(keys, row + HEIGHT + keys - queries + right)
        end = gl.where(row < queries, end, 0)
    else:
        row = place * HEIGHT
        end = keys
    return row, gl.maximum(gl.cdiv(end, BLOCK_N), 1)


@gluon.jit
def load_q(
    turn,
    step,
    q_desc,
    q_smem,
    q_full,
    k_empty,
    batch,
    head,
    row,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
):
    """Starts the copy of Q of tile number `turn`; K block number `step` is the first of its tile.

    The buffer was last read with the last K block of an earlier tile: when that is free, so is the
    buffer.
    """
    Q_STAGES: gl.constexpr = q_smem.shape[0] // CONSUMERS
    last = step - 1
    mbarrier.wait(k_empty.index(slot(last, STAGES)), phase(last, STAGES), pred=step > 0)
    for c in gl.static_range(CONSUMERS):
        place = (turn % Q_STAGES) * CONSUMERS + c
        mbarrier.expect(q_full.index(place), q_desc.block_type.nbytes)
        load_block(
            q_desc, [batch, head, row + c * ROWS, 0], q_full.index(place), q_smem.index(place)
        )


@gluon.jit
def produce_keys(
    descs, buffers, barriers, sizes,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    """The warp that fetches Q and K.

    Another one fetches V: a warp's instructions are taken from the consumers of one quarter of the
    multiprocessor, and no K waits for room for V.
    """
    q_desc, k_desc, _v_desc, _o_desc = descs
    q_smem, k_smem, _v_smem, _o_smem = buffers
    q_full, k_full, k_empty, _v_full, _v_empty = barriers
    _queries, _keys, _heads, group, _tiles_m, tiles, _right = sizes
    Q_STAGES: gl.constexpr = q_smem.shape[0] // CONSUMERS
    count = tile_count(tiles, RIGHT)
    step = 0
    at, stride = first_place(sizes, RIGHT)
    for turn in range(count):
        _place, head, batch = at
        row, blocks = tile(turn, at, sizes, ROWS * CONSUMERS, BLOCK_N, RIGHT)
        at_next = next_place(turn + 1, at, stride, sizes, RIGHT)
        head_k = head // group
        for j in range(blocks):
            first = (blocks - 1 - j) * BLOCK_N
            to = slot(step, STAGES)
            mbarrier.wait(k_empty.index(to), phase(step, STAGES) ^ 1)
            mbarrier.expect(k_full.index(to), k_desc.block_type.nbytes)
            load_block(k_desc, [batch, head_k, first, 0], k_full.index(to), k_smem.index(to))
            if (j == 0) & ((turn == 0) | (Q_STAGES == 1)):
                load_q(
                    turn, step, q_desc, q_smem, q_full, k_empty, batch, head, row, STAGES,
                    CONSUMERS,
                )  # fmt: skip
            if Q_STAGES == 2:  # noqa: SIM102, a constant and a run-time value
                if (j == 0) & (turn + 1 < count):
                    _place_next, head_next, batch_next = at_next
                    row_next, _ = tile(turn + 1, at_next, sizes, ROWS * CONSUMERS, BLOCK_N, RIGHT)
                    load_q(
                        turn + 1, step, q_desc, q_smem, q_full, k_empty, batch_next, head_next,
                        row_next, STAGES, CONSUMERS,
                    )  # fmt: skip
            step += 1
        at = at_next


@gluon.jit
def produce_values(
    descs, buffers, barriers, sizes,
    BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    """The warp that fetches V."""
    _q_desc, _k_desc, v_desc, _o_desc = descs
    _q_smem, _k_smem, v_smem, _o_smem = buffers
    _q_full, _k_full, _k_empty, v_full, v_empty = barriers
    _queries, _keys, _heads, group, _tiles_m, tiles, _right = sizes
    step = 0
    at, stride = first_place(sizes, RIGHT)
    for turn in range(tile_count(tiles, RIGHT)):
        _place, head, batch = at
        _row, blocks = tile(turn, at, sizes, ROWS * CONSUMERS, BLOCK_N, RIGHT)
        head_k = head // group
        for j in range(blocks):
            first = (blocks - 1 - j) * BLOCK_N
            to = slot(step, STAGES)
            mbarrier.wait(v_empty.index(to), phase(step, STAGES) ^ 1)
            mbarrier.expect(v_full.index(to), v_desc.block_type.nbytes)
            load_block(v_desc, [batch, head_k, first, 0], v_full.index(to), v_smem.index(to))
            step += 1
        at = next_place(turn + 1, at, stride, sizes, RIGHT)
