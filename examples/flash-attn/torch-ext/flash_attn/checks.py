"""What the interface accepts, and messages that name the argument and what is supported."""

from __future__ import annotations

import math

import torch

DTYPES = (torch.float16, torch.bfloat16)
DIMS = "a multiple of 8 from 16 to 256"
MOST = 1024
_agreed: set[tuple[object, ...]] = set()


def check_options(**options: object) -> None:
    """Raises NotImplementedError for flash-attn options other than their neutral value."""
    neutral = {
        "dropout_p": 0.0,
        "softcap": 0.0,
        "alibi_slopes": None,
        "block_table": None,
        "attn_mask": None,
    }
    for name, value in options.items():
        if value is None or value == neutral[name]:
            continue
        raise NotImplementedError(
            f"{name}={value!r} is not supported: only {name}={neutral[name]!r} is"
        )


def check_tensors(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, names: str, ndim: int, head: int
) -> None:
    """Raises TypeError or ValueError unless q, k, v agree in all that attention needs.

    Args:
        names: what the caller calls them, such as "q k v".
        ndim: rank that they must have.
        head: dimension that counts heads; the last one is the head's.
    """
    plain = type(q) is torch.Tensor and type(k) is torch.Tensor and type(v) is torch.Tensor
    if not plain or torch.compiler.is_compiling():
        _check_tensors(q, k, v, names, ndim, head)
        return
    # What was found to agree once is not looked at again: that saves 3 us a call.
    shapes = (ndim, head, q.shape, k.shape, v.shape)
    facts = (*shapes, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device)
    if facts not in _agreed:
        _check_tensors(q, k, v, names, ndim, head)
        if len(_agreed) >= MOST:
            _agreed.clear()
        _agreed.add(facts)


def _check_tensors(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, names: str, ndim: int, head: int
) -> None:
    q_name, k_name, v_name = names.split()
    for name, tensor in ((q_name, q), (k_name, k), (v_name, v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(tensor).__name__}")
        if tensor.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimensions, not shape {tuple(tensor.shape)}")
        if tensor.dtype not in DTYPES:
            raise TypeError(f"{name} must be float16 or bfloat16, not {tensor.dtype}")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(
                f"{name} ({tensor.dtype}, {tensor.device}) must have the dtype and device of"
                f" {q_name} ({q.dtype}, {q.device})"
            )
    dim = q.shape[-1]
    if dim % 8 or not 16 <= dim <= 256:
        raise ValueError(f"the head dimension of {q_name} must be {DIMS}, not {dim}")
    if k.shape[-1] != dim:
        raise ValueError(
            f"{k_name} must have the head dimension of {q_name}, {dim}, not {k.shape[-1]}"
        )
    if v.shape != k.shape:
        raise ValueError(
            f"{v_name} must have the shape of {k_name}, {tuple(k.shape)}, not {tuple(v.shape)}"
        )
    heads, heads_k = q.shape[head], k.shape[head]
    if heads_k == 0 or heads % heads_k:
        raise ValueError(
            f"the {heads} heads of {q_name} must be a multiple of the {heads_k} of {k_name}"
        )
    if ndim == 4 and q.shape[0] != k.shape[0]:
        raise ValueError(
            f"{k_name} must have the batch size of {q_name}, {q.shape[0]}, not {k.shape[0]}"
        )


def check_bounds(name: str, bounds: torch.Tensor, batch: int | None, device: torch.device) -> int:
    """Raises unless `bounds` is an int32 vector on `device`; returns its batch size."""
    if not isinstance(bounds, torch.Tensor) or bounds.dtype != torch.int32 or bounds.ndim != 1:
        raise TypeError(f"{name} must be a one-dimensional int32 tensor of sequence bounds")
    if bounds.device != device or not bounds.is_contiguous():
        raise ValueError(f"{name} must be contiguous and on {device}, not on {bounds.device}")
    if bounds.numel() < 1 or (batch is not None and bounds.numel() != batch + 1):
        wanted = "at least 1 entry" if batch is None else f"{batch + 1} entries"
        raise ValueError(f"{name} must have {wanted} (batch size + 1), not {bounds.numel()}")
    return bounds.numel() - 1


def resolve_scale(softmax_scale: float | None, dim: int, name: str = "softmax_scale") -> float:
    """The factor of the scores: 1/sqrt(dim) where None; must be finite and above 0."""
    if softmax_scale is None:
        return 1.0 / math.sqrt(dim)
    scale = float(softmax_scale)
    if not (math.isfinite(scale) and scale > 0.0):
        raise ValueError(f"{name} must be a finite number above 0, not {softmax_scale!r}")
    return scale


def resolve_window(causal: bool, window_size: tuple[int, int]) -> tuple[int | None, int | None]:
    """flash-attn's (left, right) window, -1 for no bound, as bounds that are None where absent."""
    try:
        left, right = (int(size) for size in window_size)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"window_size must be two integers (left, right), not {window_size!r}"
        ) from error
    if left < -1 or right < -1:
        raise ValueError(f"window_size must hold numbers from -1 up, not {window_size!r}")
    if causal:
        right = 0
    return (None if left < 0 else left), (None if right < 0 else right)
