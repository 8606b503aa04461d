"""The choice of a variant: pure, so each rule is a row."""

from __future__ import annotations

import published
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.archs import fits
from kernelhub.errors import InputError, NotCached
from kernelhub.formats.metadata import Metadata, parse_metadata
from kernelhub.formats.tree import DeviceFacts
from kernelhub.target import Target
from kernelhub.variants import Choice, Wish, choose

H200 = DeviceFacts(
    name="NVIDIA H200", arch="sm_90", sm_count=132, memory=1 << 37, shared_memory=232448
)


def machine(**facts: object) -> Target:
    usual = {
        "backend": {"torch": "cpu"},
        "device": None,
        "python": "3.11.7",
        "versions": {"torch": "2.13.0+cpu", "triton": "3.9.0", "einops": "0.8.0"},
        "platform": "linux-x86_64",
    }
    return Target(**{**usual, **facts})


GPU = machine(backend={"torch": "cuda"}, device=H200)
INTERPRETING = machine(interpreter=True)
BOTH = {"torch": "cpu", "jax": "cpu"}


def decide(
    names: list[str], target: Target, wish: Wish | None = None, **facts: object
) -> tuple[Choice, list[str]]:
    """The choice among variants that share their metadata, and whose metadata was read."""
    read: list[str] = []

    def metadata(name: str) -> Metadata:
        read.append(name)
        backend = name.partition("-")[2]
        known = {"universal": "cuda", "npu": "cann"}.get(backend, backend)
        return parse_metadata(published.metadata({}, backend=known, **facts))

    return choose(names, target, metadata, wish or Wish()), read


@pytest.mark.parametrize(
    ("names", "target", "wish", "expected"),
    [
        (["torch-cpu", "torch-cuda"], GPU, Wish(), "torch-cuda"),
        (["torch-cpu", "torch-cuda"], machine(), Wish(), "torch-cpu"),
        (["torch-cuda", "torch-universal"], GPU, Wish(), "torch-cuda"),
        (["torch-universal"], machine(), Wish(), "torch-universal"),
        (["torch-cpu"], GPU, Wish(), None),
        (["torch-cpu"], GPU, Wish(backend="cpu"), "torch-cpu"),
        (["torch-cuda"], machine(), Wish(backend="cuda"), "torch-cuda"),
        (["torch-cuda"], machine(), Wish(), None),
        (["torch-rocm", "torch-cuda"], INTERPRETING, Wish(), "torch-cuda"),
        (["torch-cuda", "torch-cpu"], INTERPRETING, Wish(), "torch-cpu"),
        (["torch-cuda", "torch-universal"], INTERPRETING, Wish(), "torch-universal"),
        (["jax-cpu", "torch-cpu"], machine(backend={"jax": "cpu"}), Wish(), "jax-cpu"),
        (
            ["jax-cpu", "torch-cpu"],
            machine(backend={"jax": "cpu", "torch": "cpu"}),
            Wish(),
            "torch-cpu",
        ),
        (
            ["jax-cpu", "torch-cpu"],
            machine(backend={"jax": "cpu", "torch": "cpu"}),
            Wish(framework="jax"),
            "jax-cpu",
        ),
        (["jax-cpu", "torch-cpu"], machine(backend=BOTH, jax_first=True), Wish(), "jax-cpu"),
        (
            ["jax-cpu", "torch-cpu"],
            machine(backend=BOTH, jax_first=True),
            Wish(framework="torch"),
            "torch-cpu",
        ),
        (["torch-cpu"], machine(backend=BOTH, jax_first=True), Wish(), "torch-cpu"),
        (["jax-cpu", "torch-cuda"], machine(backend=BOTH), Wish(), "jax-cpu"),
        (["jax-cpu", "torch-cuda"], machine(backend=BOTH, interpreter=True), Wish(), "torch-cuda"),
        (["torch-npu"], machine(backend={"torch": "cann"}), Wish(), "torch-npu"),
        (["torch-cuda.bak", "torch210-cxx11-cu128-x86_64-linux"], GPU, Wish(), None),
    ],
)
def test_order(names: list[str], target: Target, wish: Wish, expected: str | None) -> None:
    choice, _ = decide(names, target, wish)
    assert (choice.chosen.variant if choice.chosen else None) == expected


def test_every_variant_has_a_reason_and_unneeded_metadata_is_not_read() -> None:
    names = ["torch-cuda", "torch-universal", "torch-rocm", "jax-tpu", "notes"]
    choice, read = decide(names, GPU)
    assert read == ["torch-cuda"]
    assert {v.variant for v in choice.trace} == set(names)
    assert choice.reasons == {
        "torch-universal": "not looked at: a better one was accepted",
        "torch-rocm": "is for rocm, and cuda is what this machine has",
        "jax-tpu": "jax is not installed",
        "notes": "not a noarch variant: compiled builds are not loaded here",
    }


def test_the_other_framework_is_named_with_how_to_ask_for_it() -> None:
    names = ["jax-cpu", "torch-cpu"]
    choice, _ = decide(names, machine(backend=BOTH))
    assert choice.reasons["jax-cpu"] == (
        "not looked at: torch comes first here; framework='jax' takes this one"
    )
    choice, _ = decide(names, machine(backend=BOTH, jax_first=True))
    assert choice.chosen is not None
    assert choice.chosen.reason == "jax on cpu, before torch: this process uses jax and not torch"
    assert "framework='torch' takes this one" in choice.reasons["torch-cpu"]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"archs": ["10.0"]}, "is for 10.0, and NVIDIA H200 is sm_90"),
        ({"archs": ["9.0a"]}, None),
        ({"extension": {"requires": {"torch": ">=3"}}}, "needs torch>=3, and 2.13.0+cpu is inst"),
        ({"extension": {"requires": {"python": ">=3.13"}}}, "needs python>=3.13, and 3.11.7"),
        ({"extension": {"requires": {"jax": ">=0.8"}}}, "needs jax>=0.8, which is not installed"),
        ({"extension": {"requires": {"torch": ">=2.6,<3", "triton": ">=3.6"}}}, None),
        ({"extension": {"dependencies": ["tilelang>=1"]}}, "needs tilelang>=1, which is not inst"),
        ({"extension": {"dependencies": ["einops<0.5"]}}, "needs einops<0.5, and 0.8.0 is"),
        ({"extension": {"dependencies": ["winonly; sys_platform == 'win32'"]}}, None),
        ({"packages": ["einops"]}, None),
        ({"packages": ["tvm-ffi"]}, "needs apache-tvm-ffi, which is not installed"),
        ({"packages": ["onednn"]}, None),
    ],
)
def test_metadata(facts: dict[str, object], reason: str | None) -> None:
    choice, _ = decide(["torch-cuda"], GPU, **facts)
    if reason is None:
        assert choice.chosen is not None
    else:
        assert choice.chosen is None
        assert choice.reasons["torch-cuda"].startswith(reason)


def test_all_that_is_missing_is_said_at_once() -> None:
    needs = {"requires": {"torch": ">=3", "jax": ">=1"}, "dependencies": ["tilelang"]}
    choice, _ = decide(["torch-cuda"], GPU, extension=needs)
    assert choice.reasons["torch-cuda"].count("needs") == 3


def test_check_arch_can_be_left_out() -> None:
    choice, _ = decide(["torch-cuda"], GPU, Wish(check_arch=False), archs=["10.0"])
    assert choice.chosen is not None


def test_the_next_candidate_is_tried() -> None:
    def metadata(name: str) -> Metadata:
        archs = ["10.0"] if name == "torch-cuda" else None
        return parse_metadata(published.metadata({}, backend="cuda", archs=archs))

    choice = choose(["torch-cuda", "torch-universal"], GPU, metadata, Wish())
    assert choice.chosen is not None
    assert choice.chosen.variant == "torch-universal"


def test_only_triton_is_interpreted() -> None:
    choice, _ = decide(["torch-cuda"], INTERPRETING, extension={"languages": ["gluon"]})
    assert "only Triton can be interpreted" in choice.reasons["torch-cuda"]
    choice, _ = decide(["torch-cuda"], INTERPRETING, extension={"languages": ["triton"]})
    assert choice.chosen is not None
    assert choice.chosen.interpreted


def test_metadata_that_cannot_be_had_leaves_it_undecided() -> None:
    def metadata(name: str) -> Metadata:
        raise NotCached("not on this disk")

    choice = choose(["torch-cpu"], machine(), metadata, Wish())
    assert choice.chosen is None
    assert choice.undecided


def test_malformed_metadata_refuses_that_variant_only() -> None:
    def metadata(name: str) -> Metadata:
        data = b"{}" if name == "torch-cpu" else published.metadata({}, backend="cpu")
        return parse_metadata(data)

    choice = choose(["torch-cpu", "torch-universal"], machine(), metadata, Wish())
    assert choice.chosen is not None
    assert choice.chosen.variant == "torch-universal"
    assert "metadata.json" in choice.reasons["torch-cpu"]


@pytest.mark.parametrize("wish", [{"framework": "tensorflow"}, {"backend": "gpu"}])
def test_wishes_that_mean_nothing(wish: dict[str, str]) -> None:
    with pytest.raises(InputError):
        Wish(**wish)


@pytest.mark.parametrize(
    ("archs", "device", "expected"),
    [
        (["9.0"], "sm_90", True),
        (["9.0"], "sm_100", False),
        (["8.0"], "sm_89", True),
        (["8.9"], "sm_80", False),
        (["8.0a"], "sm_89", False),
        (["10.0f"], "sm_103", True),
        (["10.0f"], "sm_120", False),
        (["9.0+PTX"], "sm_120", True),
        (["9.0+PTX"], "sm_89", False),
        (["12.0"], "sm_120", True),
        (["sm90"], "sm_80", True),
        (["x", "8.0"], "sm_90", False),
    ],
)
def test_cuda_archs(archs: list[str], device: str, expected: bool) -> None:
    facts = DeviceFacts(name="d", arch=device, sm_count=1, memory=1, shared_memory=1)
    assert fits("cuda", archs, facts) is expected


def test_rocm_archs() -> None:
    facts = DeviceFacts(name="d", arch="gfx942", sm_count=1, memory=1, shared_memory=1)
    assert fits("rocm", ["gfx942:sramecc+:xnack-"], facts)
    assert not fits("rocm", ["gfx90a"], facts)


@given(st.lists(st.text(max_size=40), max_size=8))
def test_any_names_get_a_verdict_each(names: list[str]) -> None:
    choice, _ = decide(names, INTERPRETING)
    assert sorted(v.variant for v in choice.trace) == sorted(names)
    assert all(v.reason for v in choice.trace)
