"""Narrow floating-point formats as bit patterns in numpy arrays, rounded as GPUs round.

bfloat16 is the upper half of an IEEE binary32. The 8-bit formats are those of the OCP 8-bit
floating point specification (E4M3, E5M2) and their "FNUZ" relatives, which have no infinity and no
negative zero. Narrowing rounds to nearest even, or towards zero where Triton asks for that; to
8 bits it saturates to the largest finite value, as `cvt.rn.satfinite` does.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Eight:
    """One 8-bit format. `top` is the bit pattern of its largest finite value."""

    mantissa: int
    bias: int
    top: int
    nan: int
    infinity: int | None = None
    signed_zero: bool = True


EIGHT = {
    "fp8e4nv": Eight(mantissa=3, bias=7, top=0x7E, nan=0x7F),
    "fp8e5": Eight(mantissa=2, bias=15, top=0x7B, nan=0x7F, infinity=0x7C),
    "fp8e4b8": Eight(mantissa=3, bias=8, top=0x7F, nan=0x80, signed_zero=False),
    "fp8e5b16": Eight(mantissa=2, bias=16, top=0x7F, nan=0x80, signed_zero=False),
}
_NUMPY = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
FORMATS = frozenset({"bf16", *EIGHT, *_NUMPY})


def decode(bits: Any, name: str) -> Any:
    """Bit patterns of format `name` -> numbers, exactly. Any shape; float32, or the wider input."""
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name in EIGHT:
        return _values(name)[bits.view(np.uint8)]
    return bits.view(_NUMPY[name])


def encode(values: Any, name: str, *, nearest: bool = True) -> Any:
    """Numbers (float16, float32 or float64) -> unsigned bit patterns of format `name`."""
    if name == "bf16":
        return _to_bf16(values, nearest)
    if name in EIGHT:
        return _to_eight(values, name, nearest)
    result = values.astype(_NUMPY[name])
    if not nearest:
        away = np.abs(result.astype(np.float64)) > np.abs(values.astype(np.float64))
        result = np.where(away, np.nextafter(result, np.zeros_like(result)), result)
    return result.view(f"u{result.itemsize}")


def to_odd(values: Any) -> Any:
    """float64 -> float32 so that rounding once more, to fewer bits, equals rounding once."""
    single = values.astype(np.float32)
    exact = single.astype(np.float64)
    bits = single.view(np.uint32)
    inexact = np.isfinite(values) & (exact != values) & ((bits & np.uint32(1)) == 0)
    towards = np.where(exact < values, np.float32(np.inf), np.float32(-np.inf))
    return np.where(inexact, np.nextafter(single, towards), single)


def _to_bf16(values: Any, nearest: bool) -> Any:
    wide = to_odd(values) if values.dtype == np.float64 else values.astype(np.float32)
    bits = wide.view(np.uint32)
    upper = bits >> np.uint32(16)
    if nearest:
        upper = (bits + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(wide), np.uint32(0x7FFF), upper).astype(np.uint16)


def _to_eight(values: Any, name: str, nearest: bool) -> Any:
    form = EIGHT[name]
    size = np.abs(values.astype(np.float64))
    finite = _values(name)[: form.top + 1].astype(np.float64)  # a pattern is its own rank
    above = np.minimum(np.searchsorted(finite, size), form.top)
    below = np.maximum(above - 1, 0)
    up, down = finite[above] - size, size - finite[below]
    take_above = (up < down) | ((up == down) & (above % 2 == 0)) if nearest else up <= 0
    code = np.where(take_above, above, below).astype(np.uint8)
    signed = np.signbit(values) & (form.signed_zero | (code != 0))
    code = code | (signed.astype(np.uint8) << np.uint8(7))
    return np.where(np.isnan(values), np.uint8(form.nan), code).astype(np.uint8)


@functools.cache
def _values(name: str) -> Any:
    """The 256 values of an 8-bit format by bit pattern, float32."""
    form = EIGHT[name]
    codes = np.arange(256)
    exponent = (codes & 0x7F) >> form.mantissa
    fraction = (codes & ((1 << form.mantissa) - 1)) / (1 << form.mantissa)
    scale = np.exp2(np.maximum(exponent, 1) - form.bias)
    table = (fraction + (exponent > 0)) * scale * np.where(codes & 0x80, -1, 1)
    size = codes & 0x7F
    if form.infinity is not None:
        table[size > form.infinity] = np.nan
        table[size == form.infinity] *= np.inf
    table[codes == form.nan] = np.nan
    if form.nan == 0x7F:
        table[codes == 0xFF] = np.nan
    return table.astype(np.float32)
