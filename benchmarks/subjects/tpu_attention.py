"""Attention on a grid of lengths, most of which no tree was fitted to: what `tpu_strategy` asks."""

import importlib.util
import sys
from pathlib import Path

from kernel_builder.tuning import Case, workload

_FILE = Path(__file__).parents[2] / "examples/flash-attn/tuning/workloads_tpu.py"
_SPEC = importlib.util.spec_from_file_location("_tuned_attention", _FILE)
_TUNED = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = _TUNED
_SPEC.loader.exec_module(_TUNED)

# Every power of two from 4k to 128k, three lengths between each two, and the published shapes.
_LENGTHS = [step << power for power in range(10, 15) for step in (4, 5, 6, 7)] + [1 << 17]
_GRID = [
    Case(B=2, H=4, S=length, D=dim, causal=False) for dim in (64, 128, 256) for length in _LENGTHS
]
_PUBLISHED = [
    Case(f"published S={length}", B=8, H=32, S=length, D=256, causal=False)
    for length in (8192, 32768)
]

grid = workload(
    call=_TUNED.attention,
    cases=_GRID + _PUBLISHED,
    work={"tpu_forward.attention_tpu": _TUNED.attention_work},
)(_TUNED.forward.inputs)
