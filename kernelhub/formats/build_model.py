"""The tables of `build.toml`, edition 5, as they stand in the file.

HF's kernel-builder defines the format; what it accepts for a noarch kernel is accepted unchanged.
Additions of this toolchain: `[jax-noarch]`, `backends` of a framework table, `[general.requires]`,
`general.dependencies`, `[tuning]`. A file that uses one of them is read by this toolchain only.
"""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, ConfigDict, Field, StrictInt, model_validator

from .models import Authored
from .scalars import (
    AuthoredName,
    AuthoredVersion,
    Dependency,
    GitUrl,
    MajorMinor,
    RelativePath,
    RepoId,
    Revision,
    Specifier,
    Text,
    custom_error,
)
from .variant import Backend

EDITION = 5
DEFAULT_PYEXT = ("py", "pyi")

_PYTHON_DEPENDS = "Packages out of the list that HF's client knows, such as einops."
_KERNEL_DEPENDS = "Other kernels of the Hub that this kernel loads."


class KernelDepends(Authored):
    """Another kernel of the Hub: exactly one of `version` and `revision`."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["version"]}, {"required": ["revision"]}]}
    )

    repo_id: RepoId = Field(description="Its repository.", examples=["org/kernel"])
    version: AuthoredVersion | None = Field(None, description="Its version.", examples=[1])
    revision: Revision | None = Field(None, description="A branch, tag or commit instead.")

    @model_validator(mode="after")
    def _exactly_one(self) -> KernelDepends:
        if (self.version is None) == (self.revision is None):
            raise custom_error("expected exactly one of 'version' and 'revision'")
        return self


class HubTable(Authored):
    """[general.hub]: where the kernel is published."""

    repo_id: RepoId | None = Field(
        None, description="Repository on the Hub.", examples=["org/my-kernel"]
    )
    branch: Revision | None = Field(
        None, description="Branch to publish to; v<version> if left out.", examples=["v1"]
    )


class CudaTable(Authored):
    """[general.cuda]: what concerns CUDA only."""

    minver: MajorMinor | None = Field(None, description="Least CUDA version.", examples=["12.8"])
    maxver: MajorMinor | None = Field(None, description="Greatest CUDA version.", examples=["13.0"])
    kernel_depends: tuple[KernelDepends, ...] = Field((), description=_KERNEL_DEPENDS)
    python_depends: tuple[Text, ...] = Field((), description=_PYTHON_DEPENDS)


class BackendTable(Authored):
    """[general.neuron] and [general.xpu]: what concerns one backend only."""

    kernel_depends: tuple[KernelDepends, ...] = Field((), description=_KERNEL_DEPENDS)
    python_depends: tuple[Text, ...] = Field((), description=_PYTHON_DEPENDS)


class TpuTable(Authored):
    """[general.tpu]: what concerns TPUs only."""

    python_depends: tuple[Text, ...] = Field((), description=_PYTHON_DEPENDS)


class RequiresTable(Authored):
    """[general.requires]: versions of tools that the kernel runs with (PEP 440 specifiers)."""

    python: Specifier | None = Field(None, description="Python.", examples=[">=3.10"])
    torch: Specifier | None = Field(None, description="PyTorch.", examples=[">=2.6"])
    triton: Specifier | None = Field(None, description="Triton.", examples=[">=3.6,<4"])
    jax: Specifier | None = Field(None, description="JAX.", examples=[">=0.8"])
    helion: Specifier | None = Field(None, description="Helion.", examples=[">=0.2"])


class GeneralTable(Authored):
    """[general]: what the kernel is."""

    name: AuthoredName = Field(
        description="Name of the kernel: lower-case letters, digits and dashes. Its Python "
        "package has underscores for the dashes.",
        examples=["my-kernel"],
    )
    version: AuthoredVersion = Field(
        description="Version of the kernel's interface, 0 while it is unstable. Published on the "
        "branch v<version>.",
        examples=[1],
    )
    edition: StrictInt = Field(
        ge=EDITION,
        le=EDITION,
        description="Edition of this file's format.",
        examples=[5],
        json_schema_extra={"const": EDITION},
    )
    license: Text = Field(description="SPDX identifier of the licence.", examples=["Apache-2.0"])
    backends: tuple[Backend, ...] = Field(
        description="Backends that the kernel runs on.", examples=[["cuda", "rocm"]]
    )
    upstream: GitUrl | None = Field(
        None, description="Git URL of the project that the kernel comes from."
    )
    source: GitUrl | None = Field(None, description="Git URL of the kernel's own source.")
    python_depends: tuple[Text, ...] = Field((), description=_PYTHON_DEPENDS)
    kernel_depends: tuple[KernelDepends, ...] = Field((), description=_KERNEL_DEPENDS)
    dependencies: tuple[Dependency, ...] = Field(
        (),
        description="Python packages that the kernel imports, any of them (PEP 508).",
        examples=[["einops>=0.8"]],
    )
    requires: RequiresTable | None = Field(None, description="Versions of tools.")
    hub: HubTable | None = Field(None, description="Where the kernel is published.")
    cuda: CudaTable | None = Field(None, description="What concerns CUDA only.")
    neuron: BackendTable | None = Field(None, description="What concerns Neuron only.")
    xpu: BackendTable | None = Field(None, description="What concerns XPU only.")
    tpu: TpuTable | None = Field(None, description="What concerns TPUs only.")


class NoarchTable(Authored):
    """[jax-noarch]: a kernel for JAX, its sources in jax-ext/<package>/."""

    pyext: tuple[Text, ...] = Field(
        DEFAULT_PYEXT,
        description="Extensions of the files that belong to the kernel.",
        examples=[["py", "json"]],
    )
    backends: tuple[Backend, ...] | None = Field(
        None, description="Those of general.backends that this framework serves; all if left out."
    )


def _both_spellings(schema: dict[str, Any]) -> None:
    """Let editors take both spellings of the two keys too, but not both at once."""
    properties = schema["properties"]
    for name in ("cuda_capabilities", "rocm_archs"):
        other = name.replace("_", "-")
        properties[other] = {**properties[name], "title": other}
        schema.setdefault("allOf", []).append({"not": {"required": [name, other]}})


class TorchNoarchTable(NoarchTable):
    """[torch-noarch]: a kernel for PyTorch, its sources in torch-ext/<package>/."""

    # HF's parser reads the two keys with underscores, HF's documentation writes them with dashes.
    model_config = ConfigDict(
        alias_generator=None,
        field_title_generator=lambda name, _: name,
        json_schema_extra=_both_spellings,
    )

    cuda_capabilities: tuple[Text, ...] | None = Field(
        None,
        description="CUDA compute capabilities that it is made for; any if left out.",
        examples=[["9.0", "10.0"]],
        validation_alias=AliasChoices("cuda_capabilities", "cuda-capabilities"),
    )
    rocm_archs: tuple[Text, ...] | None = Field(
        None,
        description="ROCm architectures that it is made for; any if left out.",
        examples=[["gfx942"]],
        validation_alias=AliasChoices("rocm_archs", "rocm-archs"),
    )


class TuningTable(Authored):
    """[tuning]: how the kernel is tuned."""

    workloads: RelativePath = Field(
        description="Python file, relative to the project, that names the workloads to tune for.",
        examples=["tuning/workloads.py"],
    )


class BuildToml(Authored):
    """build.toml of a noarch kernel (edition 5)."""

    model_config = ConfigDict(
        title="build.toml",
        json_schema_extra={"anyOf": [{"required": ["torch-noarch"]}, {"required": ["jax-noarch"]}]},
    )

    general: GeneralTable = Field(description="What the kernel is.")
    torch_noarch: TorchNoarchTable | None = Field(None, description="A kernel for PyTorch.")
    jax_noarch: NoarchTable | None = Field(None, description="A kernel for JAX.")
    tuning: TuningTable | None = Field(None, description="How the kernel is tuned.")
