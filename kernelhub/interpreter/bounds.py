"""Every address that an interpreted kernel touches, checked against the tensor it came from.

Each pointer argument becomes a `Span`; the interpreter's pointer handles carry the spans that they
were derived from through address arithmetic, broadcasting and selection. A pointer that a kernel
makes of an integer carries none and is not checked. A view is checked against its whole storage,
since kernels are handed strides and may walk back from a view's first element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .faults import OutOfBounds

_KEY = "kernelhub.spans"

# Builder methods whose result points where their operands point.
DERIVES = (
    "create_addptr", "create_bitcast", "create_broadcast", "create_cat", "create_expand_dims",
    "create_gather", "create_join", "create_reshape", "create_select", "create_splat",
    "create_split", "create_trans", "create_unsplat",
)  # fmt: skip
# Builder methods that touch memory: position of the pointer, of the mask, and what they do.
TOUCHES = {
    "create_masked_load": (0, 1, "reads"),
    "create_masked_store": (0, 2, "writes"),
    "create_atomic_cas": (0, None, "exchanges"),
    "create_atomic_rmw": (1, 3, "updates"),
}


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes [start, end) that argument `name` of a kernel may touch."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Launch:
    """The launch in progress. Guarded by the lock that serialises launches."""

    kernel: str = "?"
    spans: dict[int, Span] | None = None


LAUNCH = Launch()


def spans_of(names_and_values: Iterator[tuple[str, Any]]) -> dict[int, Span]:
    """The span of every tensor among a launch's arguments, by the identity of the tensor."""
    found: dict[int, Span] = {}
    for name, value in names_and_values:
        for tensor in _tensors(value):
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
            found[id(tensor)] = Span(name, start, start + storage.nbytes())
    return found


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif hasattr(value, "block_shape"):  # a host tensor descriptor
        yield from _tensors(value.base)
    elif hasattr(value, "untyped_storage"):
        yield value


def mark(argument: Any, converted: Any) -> Any:
    """Attach the span of a launch argument to the pointer that the interpreter made of it."""
    base = argument.base if hasattr(argument, "base") and hasattr(argument, "dtype") else argument
    spans = LAUNCH.spans or {}
    span = spans.get(id(argument)) or spans.get(id(base))
    handle: Any = getattr(converted, "handle", None)
    if span is not None and hasattr(handle, "attr"):
        handle.attr[_KEY] = (span,)
    return converted


def carrying(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a builder method of DERIVES: its result points where its operands point."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        spans = tuple(dict.fromkeys(s for arg in args for s in _spans(arg)))
        if spans:
            for handle in result if isinstance(result, tuple) else (result,):
                handle.attr[_KEY] = spans
        return result

    return wrapper


def checking(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a builder method of TOUCHES: addresses outside the pointer's spans raise."""
    pointer_at, mask_at, verb = TOUCHES[name]

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        pointer = args[pointer_at]
        spans = _spans(pointer)
        if spans:
            mask = None if mask_at is None else args[mask_at].data
            _check(pointer, mask, spans, verb, getattr(self, "grid_idx", None))
        return method(self, *args, **kwargs)

    return wrapper


def materializing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a descriptor's or block pointer's method that makes pointers of its base."""

    @functools.wraps(method)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        pointers, mask = method(self, *args, **kwargs)
        if spans := _spans(self.base):
            pointers.attr[_KEY] = spans
        return pointers, mask

    return wrapper


def _spans(handle: Any) -> tuple[Span, ...]:
    attributes = getattr(handle, "attr", None)
    return attributes.get(_KEY, ()) if attributes else ()


def _check(pointer: Any, mask: Any, spans: tuple[Span, ...], verb: str, program: Any) -> None:
    addresses = np.asarray(pointer.data)
    size = max(1, pointer.get_element_ty().primitive_bitwidth // 8)
    if not addresses.size:
        return
    if len(spans) == 1:  # the common case costs two reductions and no copy
        span = spans[0]
        if int(addresses.min()) >= span.start and int(addresses.max()) + size <= span.end:
            return
    if mask is not None:
        addresses = addresses[np.broadcast_to(np.asarray(mask).astype(bool), addresses.shape)]
    inside = np.zeros(addresses.shape, dtype=bool)
    for span in spans:
        if span.end - size >= span.start:
            last = np.uint64(span.end - size)
            inside |= (addresses >= np.uint64(span.start)) & (addresses <= last)
    if inside.all():
        return
    first = int(addresses[~inside].min())
    span = spans[0]
    where = (
        f"{span.start - first} bytes before its start"
        if first < span.start
        else f"{first - span.end} bytes past its end"
    )
    raise OutOfBounds(
        f"kernel {LAUNCH.kernel!r} {verb} outside {' or '.join(repr(s.name) for s in spans)}: "
        f"{int((~inside).sum())} of {inside.size} addresses, the lowest {where}, "
        f"in program {program}",
        hint="mask the access, or check the shapes and strides that the kernel is given",
    )
