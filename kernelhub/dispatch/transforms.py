"""Launches on what torch's function transforms (vmap, grad, jvp) pass on in place of tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from kernelhub.errors import DispatchError


def refuse_transformed(
    name: str, args: Iterable[Any], kwargs: Mapping[str, Any], error: Exception
) -> None:
    """Say why a launch failed if a transform is the reason.

    A kernel reads memory, and such a value has none of its own. Asked after the failure, so that
    launches that work pay nothing.

    Args:
        name: of the tunable.
        error: what the launch raised; it is chained.

    Raises:
        DispatchError: an argument is such a value.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    if any(isinstance(v, torch.Tensor) and wrapped(v) for v in (*args, *kwargs.values())):
        raise DispatchError(
            f"{name} was launched under torch.vmap or torch.func (grad, jvp, ...), where tensors "
            "have no memory that a kernel could read",
            hint="launch it in a torch.autograd.Function that has setup_context, and for vmap a "
            "vmap method; or outside of the transform",
        ) from error
