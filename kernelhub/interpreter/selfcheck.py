"""Small kernels with known answers: what decides whether this release of Triton may interpret.

Imported only after the mode is set; its kernels are decorated at import.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernelhub.errors import LoadError

from .faults import KernelFault, OutOfBounds


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _affine(x_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:  # noqa: N803
    for start in range(0, tl.cdiv(n, BLOCK)):  # noqa: PIE808 - two bounds are the fault
        at = start * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(out_ptr + at, x * x + x, mask=at < n)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _row(x_ptr: Any, out_ptr: Any, BLOCK: tl.constexpr) -> None:  # noqa: N803
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr, tl.sum(x, axis=0))
    tl.store(out_ptr + 1, tl.max(x, axis=0))


def run() -> None:
    """Run them all.

    Raises:
        LoadError: a result is wrong.
    """
    x = torch.tensor([1.0, 1.0078125, -3.0, 1e30, 0.1, -0.0, 2.5, 7.0], dtype=torch.bfloat16)
    out = torch.empty_like(x)
    _launch(_affine, x, out, x.numel(), BLOCK=4)
    _expect("bf16 arithmetic", out, x * x + x)

    pair = torch.empty(2, dtype=torch.bfloat16)
    row = torch.tensor([1.0, 2.0, -4.0, 8.0], dtype=torch.bfloat16)
    _launch(_row, row, pair, BLOCK=4)
    _expect("bf16 reductions", pair, torch.tensor([7.0, 8.0], dtype=torch.bfloat16))

    guarded = torch.zeros(8, dtype=torch.bfloat16)
    try:
        _affine[(1,)](row, guarded, 8, BLOCK=8)
    except OutOfBounds:
        return
    raise LoadError(_text("reads outside a tensor"), hint=_HINT)


_HINT = "use a release of Triton that kernelhub supports, or a machine with a GPU"


def _text(what: str) -> str:
    return f"Triton {triton.__version__} cannot interpret kernels here: {what}"


def _launch(kernel: Any, *args: Any, **meta: Any) -> None:
    try:
        kernel[(1,)](*args, **meta)
    except (KernelFault, triton.runtime.errors.InterpreterError) as error:
        raise LoadError(_text(str(error)), hint=_HINT) from error


def _expect(what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    if not torch.equal(found.float(), wanted.float()):
        raise LoadError(
            _text(f"{what} gave {found.tolist()}, not {wanted.tolist()}"),
            hint=_HINT,
        )
