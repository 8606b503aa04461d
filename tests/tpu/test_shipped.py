"""The trees for TPUs that ship with the attention example."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.tuning.evaluate import ranker
from kernelhub.formats.evidence import parse_evidence
from kernelhub.formats.tpu import CHIPS
from kernelhub.formats.tree import parse

FOLDER = Path(__file__).parents[2] / "examples/flash-attn/jax-ext/flash_attn/tuning"
KERNEL = "tpu_forward.attention_tpu"


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
def test_each_chip_has_a_tree_that_says_that_nothing_was_timed(chip) -> None:
    path = FOLDER / f"{KERNEL}.{chip.facts.slug}.json"
    evidence = parse_evidence(path.read_bytes(), path.name)
    tree = parse(path.with_suffix(".py").read_text(), path.name)
    assert evidence.modelled
    assert tree.device == chip.facts
    assert tree.source_hash == evidence.source
    assert {config["strategy"] for config in tree.configs} == {"stream", "resident"}
    refused = [c for p in evidence.points for c in p.cells if c.reason == "out_of_resources"]
    assert refused
    assert all("VMEM" in cell.detail or "OutOfResources" in cell.detail for cell in refused)


def test_the_tree_for_7x_chooses_as_was_published() -> None:
    """(8, 32, S, 256): resident at 8k; at 32k it does not fit, and stream runs."""
    path = FOLDER / f"{KERNEL}.tpu7x.py"
    tree = parse(path.read_text(), path.name)
    evidence = parse_evidence(path.with_suffix(".json").read_bytes(), path.name)
    rank = ranker(tree.root, tree.configs)
    chosen = {}
    for length in (8192, 32768):
        point = next(
            p for p in evidence.points
            if (p.features["k_dim2"], p.features["k_dim3"], p.features["causal"])
            == (length, 256, False)
        )  # fmt: skip
        features = {**point.features, "q_dim0": 8, "q_dim1": 32, "k_dim0": 8, "k_dim1": 32,
                    "v_dim0": 8, "v_dim1": 32}  # fmt: skip
        passed_over = [evidence.configs[c.config] for c in point.cells if c.pruned]
        runs = next(config for config in rank(features) if config not in passed_over)
        chosen[length] = runs["strategy"]
        refused = {
            evidence.configs[c.config]["strategy"] for c in point.cells if c.reason is not None
        }
        assert refused == ({"resident"} if length == 32768 else set())
    assert chosen == {8192: "resident", 32768: "stream"}
