"""Every kernel compiles for every target, within its shared memory, with its defaults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Bytes of shared memory that one block may use: vendors' documentation, sm_90 read off a device.
LIMITS = {
    "cuda:80": 166_912,
    "cuda:90": 232_448,
    "cuda:100": 232_448,
    "cuda:120": 101_376,
    "hip:gfx942": 65_536,
}
HOPPER = {
    "forward_hopper.forward_kernel", "backward_hopper.backward_kernel",
    "backward_sums.prepare_kernel", "backward_sums.finish_kernel",
}  # fmt: skip


def compiled(target: str, dim: int) -> list[dict[str, object]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(HERE / "compile_check.py"), target, str(dim)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("dim", [16, 64, 96, 128, 256])
@pytest.mark.parametrize("target", LIMITS)
def test_fits_the_target(target: str, dim: int) -> None:
    rows = compiled(target, dim)
    kernels = {row["kernel"] for row in rows}
    assert kernels >= {
        "forward_triton.forward_kernel", "decode.combine_kernel",
        "backward.delta_kernel", "backward.dkdv_kernel", "backward.dq_kernel",
    }  # fmt: skip
    if target == "cuda:90" and dim >= 64:
        assert kernels >= HOPPER
    assert target == "cuda:90" or not kernels & HOPPER
    too_large = [row for row in rows if row["shared"] > LIMITS[target]]
    assert not too_large
