"""Forward attention for GPUs: one tunable over two schedules.

*triton* is a program a block of rows, on any GPU and for any size. *warpgroups* is Hopper's: one
warpgroup copies, two compute (see `hopper_forward`), for 16-bit elements and sizes that its copy
engine takes; where it cannot be, *triton* stands in.
"""

import importlib.util

from kernelhub import tunable

from . import triton_forward
from .device import is_hopper


def triton(q, k, v, **options):
    """Pallas's Triton backend."""
    return triton_forward.forward(q, k, v, **options)


def warpgroups(q, k, v, *, block_q, block_k, num_warps, num_stages, interpret, **options):
    """Pallas's Mosaic GPU backend; `block_q` and `num_warps` are what the schedule implies."""
    if interpret or not takes_warpgroups(q, k, options["heads_axis"]):
        return triton(q, k, v, **options, **triton_config(q), interpret=interpret)
    from . import hopper_forward  # needs absl, which jax does not bring

    return hopper_forward.forward(q, k, v, block_k=block_k, stages=num_stages, **options)


def takes_warpgroups(q, k, heads_axis):
    """Whether Hopper's schedule can take these arrays, here."""
    lengths = (q.shape[3 - heads_axis], k.shape[3 - heads_axis])
    return (
        is_hopper()
        and q.dtype.itemsize == 2
        and q.shape[3] % 32 == 0
        and all(length % 8 == 0 for length in lengths)
        and importlib.util.find_spec("absl") is not None
    )


def triton_config(q):
    """Blocks that fit any GPU with 100 KB of shared memory."""
    wide = q.shape[3] * q.dtype.itemsize > 256
    return {"block_q": 64 if wide else 128, "block_k": 32, "num_warps": 4, "num_stages": 2}


def _default(arguments):
    """What was best on an H200 (NOTES-jax.md), else blocks that fit any GPU.

    Rows of few keys are over before Hopper's schedule has set up its barriers. Narrow heads leave
    room for blocks of 256 keys, which pay where there are many.
    """
    q, k, heads_axis = arguments["q"], arguments["k"], arguments["heads_axis"]
    if not takes_warpgroups(q, k, heads_axis):
        return {"schedule": "triton", **triton_config(q)}
    keys, dim = k.shape[3 - heads_axis], q.shape[3]
    if keys <= 256 and dim <= 64:
        return {"schedule": "triton", "block_q": 64, "block_k": 64, "num_warps": 4, "num_stages": 3}
    block_k = 64 if dim > 128 else 128 if dim > 64 or keys < 4096 else 256
    blocks = {"block_q": 128, "block_k": block_k, "num_warps": 4, "num_stages": 2}
    return {"schedule": "warpgroups", **blocks}


def _sound(config):
    """Configurations that can win.

    Hopper's schedule has 128 rows and warps of its own, its instructions take multiples of 64 keys,
    and its ring of blocks is in shared memory. Triton's blocks are powers of two; a second group of
    warps pays for large tiles only, and fetching further ahead for blocks that take long.
    """
    rows, keys, stages = config["block_q"], config["block_k"], config["num_stages"]
    if config["schedule"] == "warpgroups":
        deep = stages == 2 or (stages == 4 and keys <= 64)
        return deep and keys >= 64 and (rows, config["num_warps"]) == (128, 4)
    warps = (4, 8) if rows * keys >= 8192 else (4,)
    return keys <= 128 and config["num_warps"] in warps and stages == (2 if keys == 32 else 3)


def _features(arguments):
    """Sizes by what they mean, in either layout."""
    q, k, heads = arguments["q"], arguments["k"], arguments["heads_axis"]
    return {
        "batch": q.shape[0],
        "heads": q.shape[heads],
        "queries": q.shape[3 - heads],
        "keys": k.shape[3 - heads],
        "dim": q.shape[3],
    }


@tunable(
    space={
        "schedule": {"triton": triton, "warpgroups": warpgroups},
        "block_q": (64, 128),
        "block_k": (32, 64, 128, 192, 256),
        "num_warps": (4, 8),
        "num_stages": (2, 3, 4),
    },
    conditions=[_sound],
    default=_default,
    features=_features,
    key=["causal", "heads_axis"],
)
def attention_gpu(
    q, k, v, *, causal, scale, heads_axis, shift=None, interpret=False,
    schedule, block_q, block_k, num_warps, num_stages,
):  # fmt: skip
    """softmax(q @ k^T * scale) @ v, one head at a time, on a GPU or in Pallas's interpreter.

    Args:
        q: (B, Hq, Sq, D) with heads_axis 1, (B, Sq, Hq, D) with heads_axis 2; float32, float16 or
            bfloat16. Neither layout is copied.
        k, v: the same with Hkv and Skv, the dtype of q; Hq a multiple of Hkv; no length 0.
        causal: row i sees keys up to i + shift.
        scale: factor of the scores.
        shift: Skv - Sq where None.
        heads_axis: 1 or 2.
        interpret: False or True.

    Returns:
        The shape and dtype of q, and the log-sum-exp of each row, (B, Hq, Sq) float32; 0 and -inf
        for rows that see no key.
    """
    if causal and shift is None:
        shift = k.shape[3 - heads_axis] - q.shape[3 - heads_axis]
    return schedule(
        q, k, v, shift=shift if causal else None, scale=scale, heads_axis=heads_axis,
        interpret=interpret, block_q=block_q, block_k=block_k, num_warps=num_warps,
        num_stages=num_stages,
    )  # fmt: skip
