"""The faults of Triton's interpreter and what is done about each: one table.

The patches replace names of `triton.runtime.interpreter`, which are private: a row names the ones
that it needs, and is left out where a release no longer has them. Whether the answers are right
all the same is for `selfcheck` to say, not for a version number. `tests/interpreter` notices when
a release that we support moves a name.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import arithmetic, bounds, floats, launches

_log = logging.getLogger(__name__)
_INTERPRETER = "triton.runtime.interpreter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One fault.

    Attributes:
        name: short and stable.
        reason: what happens without the patch.
        seen: releases of Triton in which that was seen.
        needs: "module:dotted.name" of everything that is replaced or wrapped.
        apply: does it; its argument is the module triton.runtime.interpreter.
    """

    name: str
    reason: str
    seen: tuple[str, ...]
    needs: tuple[str, ...]
    apply: Callable[[Any], None]


def apply() -> tuple[str, ...]:
    """Apply every patch whose names exist; return the names of those that were left out."""
    interpreter = importlib.import_module(_INTERPRETER)
    skipped = []
    for patch in PATCHES:
        if absent := missing(patch):
            _log.warning("interpreter patch %s left out: triton has no %s", patch.name, absent)
            skipped.append(patch.name)
        else:
            patch.apply(interpreter)
    return tuple(skipped)


def missing(patch: Patch) -> tuple[str, ...]:
    """The names that a patch needs and that this release of Triton does not have."""
    return tuple(name for name in patch.needs if not _exists(name))


def _exists(name: str) -> bool:
    module, _, path = name.partition(":")
    try:
        value = importlib.import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError):
        return False
    return True


def _wrap(owner: Any, names: tuple[str, ...], wrapper: Callable[[Any], Any]) -> None:
    for name in names:
        if hasattr(owner, name):
            setattr(owner, name, wrapper(getattr(owner, name)))


def _launches(interpreter: Any) -> None:
    executor, failure = interpreter.GridExecutor, interpreter.InterpreterError
    executor.__call__ = launches.launching(executor.__call__, failure)


def _bounds(interpreter: Any) -> None:
    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    executor._init_args_hst = launches.receiving(executor._init_args_hst)
    interpreter._implicit_cvt = launches.converting(interpreter._implicit_cvt)
    _wrap(builder, bounds.DERIVES, bounds.carrying)
    builder.create_int_to_ptr = bounds.carrying(builder.create_int_to_ptr)
    for name in bounds.TOUCHES:
        setattr(builder, name, bounds.checking(getattr(builder, name), name))
    for name in ("TensorDescHandle", "BlockPointerHandle"):  # 3.9 has no block pointers
        if hasattr(interpreter, name):
            _wrap(getattr(interpreter, name), ("materialize_pointers",), bounds.materializing)


def _bf16(interpreter: Any) -> None:
    builder, fixed = interpreter.InterpreterBuilder, arithmetic.Arithmetic(interpreter)
    _wrap(builder, arithmetic.COMPUTES, fixed.computing)
    _wrap(builder, arithmetic.COMPARES, fixed.comparing)
    builder.cast_impl = fixed.casting(builder.cast_impl)
    builder.create_dot = fixed.dotting(builder.create_dot)
    _wrap(interpreter.ReduceOps, ("min_max", "sum"), fixed.reducing)
    _wrap(interpreter.ScanOps, ("cumsum", "cumprod"), fixed.reducing)


def _bf16_atomics(interpreter: Any) -> None:
    builder, fixed = interpreter.InterpreterBuilder, arithmetic.Arithmetic(interpreter)
    builder.create_atomic_rmw = fixed.updating(builder.create_atomic_rmw)


def _bf16_constants(interpreter: Any) -> None:
    fixed = arithmetic.Arithmetic(interpreter)
    builder = interpreter.InterpreterBuilder
    builder.get_bf16 = lambda self, value: fixed.narrow(self.get_fp32(value))


def _float_conversions(interpreter: Any) -> None:
    before = interpreter._convert_float

    def convert(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        known = {source.name, target.name} <= floats.FORMATS
        chosen = arithmetic.convert_float if known else before
        return chosen(data, source, target, rounding)

    interpreter._convert_float = convert


def _asserts(interpreter: Any) -> None:
    builder = interpreter.interpreter_builder
    # Overflow checks would come with `debug`; compiled kernels wrap around, and hashes rely on it.
    builder.options = dataclasses.replace(builder.options, debug=True, sanitize_overflow=False)
    interpreter.InterpreterBuilder.create_assert = launches.create_assert


def _loop_bounds(interpreter: Any) -> None:
    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, *args: Any) -> Any:
        result = patch_tensor(tensor, *args)
        tensor.__index__ = lambda self: int(self.handle.data.item())
        return result

    interpreter._patch_lang_tensor = patched


def _booleans(interpreter: Any) -> None:
    interpreter._implicit_cvt = launches.boolean(interpreter._implicit_cvt, interpreter)
    builder = interpreter.InterpreterBuilder
    builder.binary_op = arithmetic.one_bit(builder.binary_op)


def _nan_minimum(interpreter: Any) -> None:
    builder, numpy = interpreter.InterpreterBuilder, interpreter.np
    builder.create_minnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, numpy.fmin)
    builder.create_maxnumf = lambda self, lhs, rhs: self.binary_op(lhs, rhs, numpy.fmax)


def _autotune(interpreter: Any) -> None:
    tuner = importlib.import_module("triton.runtime.autotuner").Autotuner
    tuner._bench = launches.benchmarking(tuner._bench)
    tuner.run = launches.tuned_launch(tuner.run, interpreter.InterpreterError)


def _device_only(interpreter: Any) -> None:
    builder = interpreter.InterpreterBuilder
    builder.create_inline_asm = launches.refusing("inline assembly")
    builder.create_extern_elementwise = launches.refusing("a function of a device library")
    for name in ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice",
                 "triton.language.extra.hip.libdevice"):  # fmt: skip
        module = importlib.import_module(name)
        for function, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__module__", None) == name:
                setattr(module, function, launches.refusing(f"libdevice.{function}"))


def _compiled_kernels(_interpreter: Any) -> None:
    jit = importlib.import_module("triton.runtime.jit").JITFunction
    jit.run = launches.compiled_launch(jit.run)


def _names(*paths: str, module: str = _INTERPRETER) -> tuple[str, ...]:
    return tuple(f"{module}:{path}" for path in paths)


_BOTH = ("3.6.0", "3.9.0")

# In this order: `bf16` wraps what `nan-minimum` replaces, and the bounds check what computes
# bf16 atomics.
PATCHES = (
    Patch(
        name="booleans",
        reason="a bool argument raises ValueError; int1 arithmetic saturates, 1 + 1 = 1",
        seen=("3.6.0",),
        needs=_names("_implicit_cvt", "TensorHandle", "InterpreterBuilder.binary_op"),
        apply=_booleans,
    ),
    Patch(
        name="nan-minimum",
        reason="tl.minimum and tl.maximum return nan where one operand is nan, a GPU the other",
        seen=("3.6.0",),
        needs=_names("InterpreterBuilder.create_minnumf", "InterpreterBuilder.create_maxnumf"),
        apply=_nan_minimum,
    ),
    Patch(
        name="float-conversions",
        reason="to bf16 truncates; to and from 8-bit floats is wrong in rounding, subnormals, nan",
        seen=_BOTH,
        needs=_names("_convert_float"),
        apply=_float_conversions,
    ),
    Patch(
        name="bf16",
        reason="bf16 arithmetic, comparisons, dot and reductions work on bits as integers",
        seen=_BOTH,
        needs=_names(
            "TensorHandle", "tl.bfloat16", "InterpreterBuilder.create_fadd",
            "InterpreterBuilder.create_fcmpOLT", "InterpreterBuilder.cast_impl",
            "InterpreterBuilder.create_dot", "ReduceOps.sum", "ReduceOps.min_max",
            "ScanOps.cumsum",
        ),
        apply=_bf16,
    ),
    Patch(
        name="bf16-constants",
        reason="no bf16 constants in 3.6 (descriptors ask for a zero); truncated ones in 3.9",
        seen=_BOTH,
        needs=_names("InterpreterBuilder.get_fp32"),
        apply=_bf16_constants,
    ),
    Patch(
        name="bf16-atomics",
        reason="ValueError: unsupported data type",
        seen=_BOTH,
        needs=_names("InterpreterBuilder.create_atomic_rmw", "_interpreter.load",
                     "_interpreter.store"),
        apply=_bf16_atomics,
    ),
    Patch(
        name="device-assert",
        reason="device_assert does nothing",
        seen=_BOTH,
        needs=_names("interpreter_builder.options", "InterpreterBuilder.create_assert"),
        apply=_asserts,
    ),
    Patch(
        name="loop-bounds",
        reason="range(0, tl.cdiv(...)) raises TypeError with numpy 2.4 and newer",
        seen=("3.6.0",),
        needs=_names("_patch_lang_tensor"),
        apply=_loop_bounds,
    ),
    Patch(
        name="bounds",
        reason="access outside a tensor is silent and corrupts memory",
        seen=_BOTH,
        needs=_names(
            "_implicit_cvt", "GridExecutor._init_args_hst", "TensorDescHandle.materialize_pointers",
            "InterpreterBuilder.create_addptr", "InterpreterBuilder.create_int_to_ptr",
            *(f"InterpreterBuilder.{name}" for name in bounds.TOUCHES),
        ),
        apply=_bounds,
    ),
    Patch(
        name="launches",
        reason="two threads launching at once undo each other's patches of triton.language; "
        "numpy warns of inf and nan; errors do not name the kernel",
        seen=_BOTH,
        needs=_names("GridExecutor.__call__", "InterpreterError"),
        apply=_launches,
    ),
    Patch(
        name="autotune",
        reason="RuntimeError: 0 active drivers, because it wants to benchmark",
        seen=_BOTH,
        needs=_names("Autotuner.run", "Autotuner._bench", module="triton.runtime.autotuner"),
        apply=_autotune,
    ),
    Patch(
        name="device-only",
        reason="libdevice raises an unrelated TypeError, inline assembly a nameless error",
        seen=_BOTH,
        needs=_names(
            "InterpreterBuilder.create_inline_asm", "InterpreterBuilder.create_extern_elementwise"
        ) + _names("tanh", module="triton.language.extra.libdevice"),
        apply=_device_only,
    ),
    Patch(
        name="compiled-kernels",
        reason="RuntimeError: 0 active drivers for a kernel that was decorated to compile",
        seen=_BOTH,
        needs=_names("JITFunction.run", module="triton.runtime.jit"),
        apply=_compiled_kernels,
    ),
)  # fmt: skip
