"""What the tuner sees of the kernel, and the kernel under a loader without kernelhub."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from flash_package import load

from kernelhub.dispatch.capturing import LiveLaunch, capture, forced
from kernelhub.dispatch.finding import find_tunables


def tensors(device: str, queries: int, keys: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = ((1, queries, 4, 32), (1, keys, 2, 32), (1, keys, 2, 32))
    return [torch.randn(shape, device=device).to(torch.float16) for shape in shapes]


@pytest.mark.parametrize(
    ("queries", "keys", "name"), [(70, 70, "attention_fwd"), (1, 300, "attention_decode")]
)
def test_each_kind_of_call_is_one_tunable(
    kernel: ModuleType, device: str, queries: int, keys: int, name: str
) -> None:
    tunables = find_tunables(kernel)
    seen: list[LiveLaunch] = []
    with capture(seen.append):
        kernel.flash_attn_func(*tensors(device, queries, keys), causal=True)
    (live,) = seen
    assert live.tunable is tunables[f"tuned.{name}"]
    assert live.features["q_dim3"] == 32
    assert live.features.get("causal", True) is True
    # What the caller scales by is no reason to choose another configuration.
    assert not {"softmax_scale", "left", "right"} & set(live.features)


def test_a_chosen_configuration_runs(kernel: ModuleType, device: str) -> None:
    find_tunables(kernel)
    configs = sys.modules[f"{kernel.__name__}.configs"]
    q, k, v = tensors(device, 70, 70)
    usual = kernel.flash_attn_func(q, k, v)
    launched: list[int] = []
    attention = sys.modules[f"{kernel.__name__}.attention"]
    launch = attention.KERNEL.launch

    def watch(key: Any, programs: int, *rest: Any) -> None:
        launched.append(programs)
        launch(key, programs, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention.KERNEL, "launch", watch)
        for rows in (32, 64):
            with forced({"tuned.attention_fwd": configs.triton_config(rows, 64, 4, 3)}):
                out = kernel.flash_attn_func(q, k, v)
                torch.testing.assert_close(out, usual, atol=1e-3, rtol=1e-3)
    assert launched == [3 * 4, 2 * 4]  # tiles of 70 rows, 4 heads


def test_without_kernelhub(
    kernel: ModuleType, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kernelhub", None)
    alone = load(tmp_path, "flash_attn_alone")
    for queries, keys in ((70, 70), (1, 300)):
        q, k, v = tensors(device, queries, keys)
        assert torch.equal(alone.flash_attn_func(q, k, v), kernel.flash_attn_func(q, k, v))
