"""Are two results the same, within a tolerance? Works on nested results of torch, JAX and numpy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any


def snapshot(value: Any) -> Any:
    """A copy of a result that later writes do not change. Anything but arrays stays as it is."""
    if isinstance(value, Mapping):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [snapshot(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: snapshot(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    if hasattr(value, "detach"):
        return value.detach().clone()
    return value.copy() if _is_array(value) and hasattr(value, "copy") else value


def difference(result: Any, expected: Any, tolerance: float) -> str | None:
    """What differs, None if nothing does.

    Floating-point arrays are equal when no element is off by more than `tolerance` times the
    largest finite magnitude of the expected array, and NaN and infinities are where they are
    expected. Everything else must be equal.
    """
    for path, mine, theirs in _pairs(result, expected, ""):
        text = _compare(mine, theirs, tolerance)
        if text is not None:
            return f"{path or 'result'}: {text}"
    return None


def _pairs(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a.keys() == b.keys():
        for key in a:
            yield from _pairs(a[key], b[key], f"{path}[{key!r}]")
    elif isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _pairs(x, y, f"{path}[{index}]")
    elif dataclasses.is_dataclass(a) and type(a) is type(b):
        for field in dataclasses.fields(a):
            yield from _pairs(getattr(a, field.name), getattr(b, field.name), f".{field.name}")
    else:
        yield path, a, b


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _compare(a: Any, b: Any, tolerance: float) -> str | None:
    if not (_is_array(a) and _is_array(b)):
        same = a is b or (type(a) is type(b) and _plainly_equal(a, b))
        return None if same else f"{_short(a)} instead of {_short(b)}"
    if tuple(a.shape) != tuple(b.shape):
        return f"shape {tuple(a.shape)} instead of {tuple(b.shape)}"
    if hasattr(a, "detach"):
        return _compare_torch(a, b, tolerance)
    import numpy

    return _compare_numpy(numpy.asarray(a), numpy.asarray(b), tolerance)


def _plainly_equal(a: Any, b: Any) -> bool:
    """Numbers and texts by value; containers that got here differ in size or keys; of anything else
    (a dtype, a generator) only the type can be compared."""
    if isinstance(a, (Mapping, tuple, list)):
        return False
    return bool(a == b) if isinstance(a, (int, float, str, bool, type(None))) else True


def _short(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if _is_array(value) else repr(value)[:80]


def _compare_torch(a: Any, b: Any, tolerance: float) -> str | None:
    import torch

    a, b = a.detach(), b.detach()
    if not (a.is_floating_point() or b.is_floating_point()):
        return None if torch.equal(a, b.to(a.dtype)) else "values differ"
    if a.numel() == 0:
        return None
    if a.dtype == b.dtype and torch.equal(a, b):
        return None
    wide = torch.float64 if torch.float64 in (a.dtype, b.dtype) else torch.float32
    a, b = a.to(wide), b.to(wide)
    error, scale = float((a - b).abs().max()), float(b.abs().max())
    if math.isfinite(error) and math.isfinite(scale):
        return verdict(error, scale, tolerance)
    finite = torch.isfinite(b)
    if not torch.equal(torch.isfinite(a), finite):
        bad = int((~torch.isfinite(a)).sum() - (~finite).sum())
        return f"{abs(bad)} values are {'not ' if bad > 0 else 'wrongly '}finite"
    if not bool(finite.any()):
        return None
    limit = float(b[finite].abs().max())
    return verdict(float((a - b)[finite].abs().max()), limit, tolerance)


def _compare_numpy(a: Any, b: Any, tolerance: float) -> str | None:
    import numpy

    if a.dtype.kind not in "fV" and b.dtype.kind not in "fV":
        return None if numpy.array_equal(a, b) else "values differ"
    # Kind V is ml_dtypes' bfloat16 and friends.
    a, b = a.astype(numpy.float64), b.astype(numpy.float64)
    finite = numpy.isfinite(b)
    if not numpy.array_equal(numpy.isfinite(a), finite):
        return "values are not finite where they should be"
    if not finite.any():
        return None
    return verdict(
        float(numpy.abs(a - b)[finite].max()), float(numpy.abs(b[finite]).max()), tolerance
    )


def verdict(error: float, scale: float, tolerance: float) -> str | None:
    """What is wrong with a largest error beside a largest magnitude, None if nothing is."""
    if error <= tolerance * scale or error == 0.0:
        return None
    relative = error / scale if scale else math.inf
    return f"largest error {relative:.2g} of the largest value, tolerance {tolerance:g}"
