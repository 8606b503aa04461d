import json
from pathlib import Path

import torch

from ._ops import add_op_namespace_prefix


@torch.library.custom_op(add_op_namespace_prefix("relu"), mutates_args=())
def _relu(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.relu(x) * scale


@torch.library.register_fake(add_op_namespace_prefix("relu"))
def _relu_fake(x: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(x)


def scales():
    """Scales that the kernel was tried with."""
    return json.loads((Path(__file__).parent / "scales.json").read_text())
