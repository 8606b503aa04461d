"""Facts of TPU chips, and which tree counts on a chip that has none of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from kernelhub import tunable
from kernelhub.dispatch.dispatcher import bound_tree
from kernelhub.dispatch.policy import order
from kernelhub.formats.tpu import CHIPS, chip_of_kind, chip_of_name, generation
from kernelhub.formats.tree import DeviceFacts, Leaf, Tree
from kernelhub.target import jax_device_facts

FACTS = {chip.name: chip.facts for chip in CHIPS}


@dataclass(frozen=True)
class Tuned:
    device: DeviceFacts
    overlay: bool = False


def test_facts_are_those_of_jax_own_table() -> None:
    pltpu = pytest.importorskip("jax.experimental.pallas.tpu")
    for chip in CHIPS:
        version = pltpu.ChipVersion(chip.name)
        for cores in {1, chip.facts.sm_count}:
            info = pltpu.get_tpu_info_for_chip(version, cores)
            assert info.vmem_capacity_bytes == chip.facts.shared_memory
        assert info.num_cores == chip.facts.sm_count
        memory = info.hbm_capacity_bytes * chip.facts.sm_count
        assert memory == pytest.approx(chip.facts.memory, rel=0.01)


@pytest.mark.parametrize("text", ["v5e", "tpu-v5e", "TPU v5e", "5e"])
def test_a_chip_by_any_of_its_names(text) -> None:
    assert chip_of_name(text) is CHIPS[1]


def test_a_device_of_jax_has_its_chips_facts() -> None:
    device = SimpleNamespace(platform="tpu", device_kind="TPU v6 lite", memory_stats=dict)
    assert jax_device_facts(device) == FACTS["v6e"]
    assert chip_of_kind("TPU v99") is None
    assert chip_of_name("h200") is None
    assert [generation(chip.facts.arch) for chip in CHIPS] == [4, 5, 5, 6, 7]


@pytest.mark.parametrize(
    ("trees", "device", "asked"),
    [
        (["v4", "v5e", "v5p"], "v6e", ["v5e", "v5p", "v4"]),  # the nearest generation first
        (["v5e", "v6e"], "7x", []),  # tuned for twice the VMEM
        (["v4", "v5p", "v6e"], "7x", ["v5p", "v4"]),
        (["7x"], "v6e", []),  # never a newer one
        (["v5e", "7x"], "7x", ["7x"]),
    ],
)
def test_an_older_tree_counts_only_where_all_of_it_fits(trees, device, asked) -> None:
    ordered = order([Tuned(FACTS[name]) for name in trees], FACTS[device])
    assert [tree.device for tree in ordered] == [FACTS[name] for name in asked]


@pytest.mark.parametrize(
    ("tuned_on", "says", "block"),
    [("v5p", "that of TPU v5p chooses", 8), ("v6e", "the author's default runs", 4)],
)
def test_whose_tree_chooses_is_said_once(caplog, tuned_on, says, block) -> None:
    @tunable(configs=[{"block": 4}, {"block": 8}])
    def scale(n, *, block):
        return block

    scale.fallback_device = FACTS["7x"]
    tree = Tree(
        kernel="scale", device=FACTS[tuned_on], tools={"jax": "0.10.2"},
        source_hash=scale.source_hash(), features={}, configs=({"block": 8},), root=Leaf((0,)),
    )  # fmt: skip
    scale.give(lambda: [bound_tree(tree, "scale.py", overlay=False)])
    with caplog.at_level(logging.WARNING, logger="kernelhub"):
        assert [scale(n) for n in (1, 2, 3)] == [block] * 3
    (message,) = [m for m in caplog.messages if "TPU7x" in m]
    assert says in message
