"""Bit patterns of narrow floats against torch's own conversions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from kernelhub.interpreter import floats  # noqa: E402

TORCH = {
    "bf16": torch.bfloat16,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}
LARGEST = {"bf16": 3.0e38, "fp8e4nv": 448, "fp8e5": 57344, "fp8e4b8": 240, "fp8e5b16": 57344}
singles = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", TORCH)
def test_every_8_bit_pattern_decodes_as_torch_does(name: str) -> None:
    patterns = torch.arange(256 if name != "bf16" else 65536).to(
        torch.uint8 if name != "bf16" else torch.uint16
    )
    wanted = patterns.view(TORCH[name]).float().numpy()
    np.testing.assert_array_equal(floats.decode(patterns.numpy(), name), wanted)


@pytest.mark.parametrize("name", TORCH)
@given(values=st.lists(singles, min_size=1, max_size=20))
def test_encode_rounds_to_nearest_even(name: str, values: list[float]) -> None:
    bound = LARGEST[name]
    array = np.clip(np.array(values, np.float32), -bound, bound)
    wanted = torch.from_numpy(array).to(TORCH[name]).float().numpy()
    np.testing.assert_array_equal(floats.decode(floats.encode(array, name), name), wanted)


@pytest.mark.parametrize("name", TORCH)
@given(value=singles)
def test_encode_towards_zero_never_grows(name: str, value: float) -> None:
    array = np.array([value], np.float32)
    found = floats.decode(floats.encode(array, name, nearest=False), name)
    assert abs(found[0]) <= abs(array[0])


@given(value=st.floats(allow_nan=False, allow_infinity=False, min_value=-1e38, max_value=1e38))
def test_float64_is_rounded_once(value: float) -> None:
    array = np.array([value])
    found = floats.decode(floats.encode(array, "bf16"), "bf16").astype(np.float64)[0]
    down = floats.decode(floats.encode(array, "bf16", nearest=False), "bf16").astype(np.float64)[0]
    up_bits = floats.encode(array, "bf16", nearest=False) + np.uint16(1)
    up = floats.decode(up_bits, "bf16").astype(np.float64)[0]
    assert abs(found - value) == min(abs(down - value), abs(up - value))
