"""The card: front matter that YAML reads, and what people need to load the kernel."""

from __future__ import annotations

import json

import pytest
import yaml

from kernel_builder.card import make_card, render_card
from kernel_builder.project import Project
from kernelhub.errors import InputError


def render(root) -> str:
    return render_card(make_card(Project.open(root), "demo/kernel")).decode()


def front_matter(text: str) -> dict[str, object]:
    _, matter, _ = text.split("---\n", 2)
    loaded = yaml.safe_load(matter)
    assert isinstance(loaded, dict)
    return loaded


def test_card_of_a_torch_kernel(sample):
    text = render(sample("fused-relu"))
    assert front_matter(text) == {
        "library_name": "kernels",
        "license": "apache-2.0",
        "tags": ["kernel", "torch"],
    }
    assert 'get_kernel("demo/kernel", version=1, trust_remote_code=True)' in text
    assert "- `relu(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor`: Return scale *" in text
    assert "torch-cpu, torch-cuda, torch-rocm" in text
    assert "https://example.org/kernels/fused-relu.git" in text
    assert "{{" not in text  # the sample's CARD.md is a template for another builder


def test_prose_of_the_project_replaces_the_opening(sample):
    text = render(sample("triton-scale"))
    assert "# triton-scale\n\nScales a vector, in prose of its author.\n\n## Load it" in text


def test_front_matter_of_a_card_source_is_not_repeated(make_project):
    root = make_project()
    (root / "CARD.md").write_text("---\nlicense: mit\n---\n# Title\n\nWords.\n")
    text = render(root)
    assert front_matter(text)["license"] == "apache-2.0"
    assert text.count("---\n") == 2
    assert "Title" not in text
    assert "Words." in text


def test_both_frameworks_have_their_own_interface(sample):
    text = render(sample("both-frameworks"))
    assert "### jax\n\n- `double(x: jax.Array) -> jax.Array`" in text
    assert "### torch\n\n- `double(x: torch.Tensor) -> torch.Tensor`" in text
    assert front_matter(text)["tags"] == ["kernel", "pallas", "torch"]


def test_what_was_measured(make_project):
    evidence = {
        "kernel": "gate.silu",
        "device": {"name": "NVIDIA H200"},
        "scores": {
            "fitted": {"points": 12, "geomean": 1.0123},
            "held_out": {"points": 0, "geomean": None},
        },
        "goal": {"max_slowdown": 1.05, "misses": [{"where": "fitted: a"}, {"where": "left out"}]},
    }
    other = {
        "kernel": "gate.silu",
        "device": {"name": "TPU v5|e"},
        "fit": {"points": 3, "geomean": 1, "worst": 1},
        "held_out": {"points": 2, "geomean": 1.5, "worst": 2.0},
    }
    files = {
        "tuning/gate.silu.nvidia-h200.json": json.dumps(evidence),
        "tuning/gate.silu.tpu-v5e.json": json.dumps(other),
        "tuning/x.json": "[1]",
        "tuning/y.json": "{",
        "tuning/z.json": '{"kernel": "k", "device": {"name": 3}}',
    }
    text = render(make_project(files))
    assert "| `gate.silu` | NVIDIA H200 | 1.012 over 12 | none | 1.05, missed 2 times |" in text
    assert "| `gate.silu` | TPU v5\\|e | 1.000 over 3 | 1.500 over 2 | not stated |" in text
    assert text.count("\n| `") == 2


@pytest.mark.parametrize("licence", ["yes", "my licence: v2", "- x", "0", ""])
def test_any_licence_is_sound_yaml(make_project, licence):
    root = make_project()
    toml = (root / "build.toml").read_text().replace('"Apache-2.0"', repr(licence))
    (root / "build.toml").write_text(toml)
    assert front_matter(render(root))["license"] == licence.lower()


def test_card_source_that_is_not_utf8(make_project):
    root = make_project()
    (root / "CARD.md").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"CARD\.md"):
        render(root)
