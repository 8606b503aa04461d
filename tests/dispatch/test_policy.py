"""Which trees count on a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from kernelhub.dispatch.policy import compatible, order, parse_arch, same_device
from kernelhub.formats.tree import DeviceFacts

from .helpers import B200, H100, H200, L4


@dataclass(frozen=True)
class Tuned:
    device: DeviceFacts
    overlay: bool = False


def test_a_device_is_more_than_its_architecture() -> None:
    assert same_device(H200, replace(H200, memory=int(H200.memory * 0.97)))
    assert not same_device(H200, H100)
    for change in ({"name": "GH200"}, {"sm_count": 66}, {"memory": 75 << 30},
                   {"shared_memory": 1 << 16}):  # fmt: skip
        assert not same_device(replace(H200, **change), H200)


@pytest.mark.parametrize(
    ("tree", "device", "expected"),
    [
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),  # a newer ISA
        ("sm_90", "sm_80", False),
        ("sm_90", "sm_100", False),
        ("sm_100", "sm_120", False),  # 227 KB configurations on a 99 KB part
        ("sm_100", "sm_103", True),
        ("sm_120", "sm_121", True),
        ("gfx942", "gfx950", True),
        ("gfx950", "gfx942", False),
        ("gfx942", "gfx90a", False),
        ("gfx90a", "gfx942", True),
        ("gfx942", "gfx1100", False),
        ("gfx1100", "gfx942", False),
        ("gfx942", "gfx942:sramecc+:xnack-", True),
        ("sm_90", "gfx90a", False),
        ("tpu7x", "tpu7x", True),
        ("tpu7x", "tpu6e", False),
        ("tpu6e", "tpu7x", True),
        ("tpu5e", "tpu5p", True),
        ("tpu6e", "sm_90", False),
        ("", "sm_90", False),
    ],
)
def test_never_a_newer_isa_nor_another_family(tree, device, expected) -> None:
    assert compatible(replace(H200, arch=tree), replace(H200, arch=device)) is expected


def test_names_of_architectures() -> None:
    assert parse_arch("sm_120a") == ("nvidia", 12, 0, 0)
    assert parse_arch("gfx90a") == ("amd", 9, 0, 10)
    assert parse_arch("gfx1100") == ("amd", 11, 0, 0)
    assert parse_arch("tpu7x") is None


def test_order_of_trees() -> None:
    gh200 = replace(H200, name="NVIDIA GH200", memory=100_000_000_000)
    small = replace(H100, name="NVIDIA H100 PCIe", sm_count=114)
    trees = [Tuned(B200), Tuned(small), Tuned(gh200), Tuned(L4), Tuned(H200), Tuned(H200, True),
             Tuned(H100, True)]  # fmt: skip
    ordered = order(trees, H200)
    assert ordered == [Tuned(H200, True), Tuned(H200), Tuned(gh200), Tuned(small)]
    assert order(reversed(trees), H200) == ordered
    assert order(trees, None) == []
