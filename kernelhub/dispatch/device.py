"""Facts of the device that a call runs on, per ordinal, as torch and the compiler report them."""

from __future__ import annotations

import sys
from typing import Any

from kernelhub.formats.tree import DeviceFacts


def torch_device(index: int) -> DeviceFacts | None:
    """The GPU with this ordinal, None if torch is not loaded or sees none."""
    if index not in _known:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or index >= torch.cuda.device_count():
            return None
        _known[index] = _from_torch(torch, index)
    return _known[index]


_known: dict[int, DeviceFacts] = {}


def _from_torch(torch: Any, index: int) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(index)
    amd = (getattr(properties, "gcnArchName", "") or "").partition(":")[0]
    hip = torch.version.hip is not None
    block = getattr(properties, "shared_memory_per_block_optin", 0)
    return DeviceFacts(
        name=properties.name,
        arch=amd if hip else f"sm_{properties.major}{properties.minor}",
        sm_count=properties.multi_processor_count,
        memory=properties.total_memory,
        shared_memory=block or properties.shared_memory_per_block,
    )
