"""A contender whose CUDA graph cannot be captured costs its own cell of a table, nothing else."""

from __future__ import annotations

from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from benchmarks import attention, attention_rows, gpu_timing  # noqa: E402 - only where torch is


def test_a_failed_capture_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def capture(call: attention_rows.Call) -> object:
        return call()

    def fail() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(gpu_timing, "capture", capture)
    monkeypatch.setattr(gpu_timing, "longest", lambda _: 1.0)
    monkeypatch.setattr(gpu_timing, "replay", lambda graphs, *_: {name: [1.0] for name in graphs})
    bench = attention_rows.Bench(kernel=ModuleType("none"), device="cuda", peers={})
    row = bench._device_ms({"ours": lambda: object(), "cudnn": fail})
    assert row["device_ms"] == {"ours": [1.0]}
    assert row["failed"] == {
        "cudnn": "RuntimeError: operation not permitted when stream is capturing"
    }


def test_a_table_with_a_hole(capsys: pytest.CaptureFixture[str]) -> None:
    whole = {"shape": (4, 16, 512, 64), "causal": True}
    rows = [
        {**whole, "device_ms": {"flash": [2.0], "cudnn": [3.0], "ours": [1.0]}},
        {
            **whole,
            "device_ms": {"flash": [8.0], "ours": [1.0]},
            "failed": {"cudnn": "RuntimeError: no"},
        },
    ]
    figures = {f["peer"]: f for f in attention.speed_ups("causal", rows)}
    assert figures["SDPA flash"]["value"] == 4.0
    assert figures["SDPA cudnn"]["value"] == 3.0
    assert "1 not measured" in figures["SDPA cudnn"]["note"]
    assert "cudnn was not captured: RuntimeError: no" in capsys.readouterr().out
