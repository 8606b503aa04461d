"""What the interface accepts, and messages that name the argument and what is supported."""

import math

import jax
from jax.core import Tracer

from .device import platform_of

# float16 is not a type of TPUs; interpret mode on the CPU takes all three.
DTYPES = {
    "cpu": ("float32", "bfloat16", "float16"),
    "gpu": ("float32", "bfloat16", "float16"),
    "tpu": ("float32", "bfloat16"),
}
WIDEST = 256
MOST_ELEMENTS = 2**31  # Triton's kernels count elements in 32 bits


def check_options(**options):
    """Raises NotImplementedError for options other than their neutral value, TypeError for traced
    ones."""
    neutral = {"dropout_p": 0.0, "softcap": 0.0, "alibi_slopes": None, "attn_mask": None}
    neutral["window_size"] = (-1, -1)
    for name, value in options.items():
        if value is None or known(name, value) == neutral[name]:
            continue
        raise NotImplementedError(
            f"{name}={value!r} is not supported: only {name}={neutral[name]!r} is"
        )


def known(name, value):
    """The value of an option, which is part of the compiled program.

    Raises:
        TypeError: it is traced.
    """
    if isinstance(value, Tracer):
        raise TypeError(
            f"{name} is traced, and the kernel is compiled for its value: pass a plain one, and "
            f"name {name} in static_argnames of a jax.jit around the call"
        )
    return value


def check_arrays(q, k, v, names, heads_axis):
    """Raises TypeError or ValueError unless q, k, v agree in all that attention needs.

    Args:
        names: what the caller calls them, such as "q k v".
        heads_axis: the axis that counts heads, 1 or 2.

    Returns:
        The platform that they are on, or that the function is traced for: "cpu", "gpu" or "tpu".
    """
    q_name, k_name, v_name = names.split()
    arrays = {q_name: q, k_name: k, v_name: v}
    for name, array in arrays.items():
        _check_one(name, array)
        if array.dtype != q.dtype:
            raise ValueError(f"{name} ({array.dtype}) must have the dtype of {q_name} ({q.dtype})")
    platform = platform_of(arrays)
    if q.dtype.name not in DTYPES[platform]:
        raise TypeError(
            f"{q_name} is {q.dtype}, which this kernel does not take on a {platform.upper()}: "
            f"convert it to {' or '.join(DTYPES[platform])}"
        )
    _check_shapes(q, k, v, names, heads_axis)
    if platform == "gpu" and max(q.size, k.size) >= MOST_ELEMENTS:
        raise ValueError(
            f"{q_name} {q.shape} and {k_name} {k.shape} must have fewer than 2^31 elements on a "
            "GPU: split the batch"
        )
    return platform


def _check_one(name, array):
    if not isinstance(array, jax.Array):
        raise TypeError(f"{name} must be a jax.Array, not {type(array).__name__}")
    if array.ndim != 4:
        raise ValueError(f"{name} must have 4 dimensions, not shape {array.shape}")
    if not all(isinstance(size, int) for size in array.shape):
        raise ValueError(
            f"{name} has the shape {array.shape}: blocks are chosen while tracing, so every size "
            "must be a number; export one function for each shape"
        )


def _check_shapes(q, k, v, names, heads_axis):
    q_name, k_name, v_name = names.split()
    dim = q.shape[3]
    if not 1 <= dim <= WIDEST:
        raise ValueError(f"the head dimension of {q_name} must be 1 to {WIDEST}, not {dim}")
    if k.shape[3] != dim:
        raise ValueError(
            f"{k_name} must have the head dimension of {q_name}, {dim}, not {k.shape[3]}"
        )
    if v.shape != k.shape:
        raise ValueError(f"{v_name} must have the shape of {k_name}, {k.shape}, not {v.shape}")
    heads, heads_k = q.shape[heads_axis], k.shape[heads_axis]
    if heads_k == 0 or heads % heads_k:
        raise ValueError(
            f"the {heads} heads of {q_name} must be a multiple of the {heads_k} of {k_name}"
        )
    if q.shape[0] != k.shape[0]:
        raise ValueError(
            f"{k_name} must have the batch size of {q_name}, {q.shape[0]}, not {k.shape[0]}"
        )


def resolve_scale(softmax_scale, dim, name="softmax_scale"):
    """The factor of the scores: 1/sqrt(dim) where None; must be finite and above 0, not traced."""
    if softmax_scale is None:
        return 1.0 / math.sqrt(dim)
    scale = float(known(name, softmax_scale))
    if not 0.0 < scale < math.inf:
        raise ValueError(f"{name} must be finite and above 0, not {softmax_scale}")
    return scale
