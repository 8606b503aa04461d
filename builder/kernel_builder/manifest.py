"""`metadata.json` of a variant, made from `build.toml` and what the sources show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernelhub.formats.build_toml import BuildFile
from kernelhub.formats.digest import Digest
from kernelhub.formats.metadata import (
    BackendInfo,
    KernelDependency,
    KernelhubExtension,
    Metadata,
    render_metadata,
)
from kernelhub.formats.variant import Backend, Framework, VariantName

MINVER = "0.14.0"
MINVER_WITH_KERNEL_DEPENDS = "0.17.0"

# The packages that HF's client knows, general and per backend; it refuses kernels that name others.
_CURATED = frozenset({"einops", "helion", "tvm-ffi"})
_CURATED_FOR = {
    "cuda": frozenset({"nvidia-cutlass-dsl"}),
    "neuron": frozenset({"nki"}),
    "xpu": frozenset({"onednn"}),
}
_HOME: Mapping[str, Framework] = {
    "torch": "torch",
    "triton": "torch",
    "helion": "torch",
    "jax": "jax",
}
_CURATED_NAME = {"apache-tvm-ffi": "tvm-ffi", "onednn-devel": "onednn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantFacts:
    """What the sources say about one variant.

    Attributes:
        uid: id of the build's content.
        files: path relative to the variant to base64 of its sha256.
        languages: kernel languages that the sources import.
    """

    variant: VariantName
    uid: str
    files: Mapping[str, str]
    languages: tuple[str, ...]


def variants_of(build_file: BuildFile, framework: str) -> tuple[VariantName, ...]:
    """The variants that a project builds for a framework, sorted by name."""
    backends = build_file.frameworks[framework].backends
    return tuple(VariantName(cast(Framework, framework), name) for name in sorted(set(backends)))


def make_metadata(build_file: BuildFile, facts: VariantFacts) -> bytes:
    """The bytes of `metadata.json` for one variant."""
    backend = facts.variant.backend
    requires = _requires(build_file, facts)
    kernel_depends = tuple(
        KernelDependency(repo_id=d.repo_id, version=d.version, revision=d.revision)
        for d in build_file.kernel_depends_for(backend)
    )
    return render_metadata(
        Metadata(
            name=build_file.name,
            id=f"_{build_file.python_name}_{backend}_{facts.uid}",
            version=build_file.version,
            kernels_minver=MINVER_WITH_KERNEL_DEPENDS if kernel_depends else MINVER,
            license=build_file.license,
            upstream=build_file.upstream,
            source=build_file.source,
            python_depends=tuple(dict.fromkeys(_python_depends(build_file, backend, requires))),
            kernel_depends=kernel_depends,
            backend=BackendInfo(
                type=cast(Backend, backend), archs=_archs(build_file, facts.variant)
            ),
            digest=Digest(algorithm="sha256", files=facts.files),
            provenance=None,
            extension=KernelhubExtension(
                schema_version=1,
                framework=facts.variant.framework,
                languages=facts.languages,
                requires=requires,
                dependencies=build_file.dependencies,
            ),
        )
    )


def _requires(build_file: BuildFile, facts: VariantFacts) -> dict[str, str]:
    """The ranges that concern the variant: what is only the other framework's must not keep it from
    machines that have one of the two."""
    used = {"jax" if language == "pallas" else language for language in facts.languages}
    foreign = {
        tool
        for tool, home in _HOME.items()
        if home != facts.variant.framework and home in build_file.frameworks and tool not in used
    }
    return {tool: build_file.requires[tool] for tool in sorted({*build_file.requires} - foreign)}


def _python_depends(
    build_file: BuildFile, backend: str, requires: Mapping[str, str]
) -> Iterator[str]:
    """Names for HF's client: those that the author gave, and ours among those it knows."""
    yield from build_file.python_depends_for(backend)
    known = _CURATED | _CURATED_FOR.get(backend, frozenset())
    names = [Requirement(text).name for text in build_file.dependencies]
    for name in (*names, *requires):
        canonical = canonicalize_name(name)
        curated = _CURATED_NAME.get(canonical, canonical)
        if curated in known:
            yield curated


def _archs(build_file: BuildFile, variant: VariantName) -> tuple[str, ...] | None:
    framework = build_file.frameworks[variant.framework]
    if variant.backend == "cuda":
        return framework.cuda_capabilities
    return framework.rocm_archs if variant.backend == "rocm" else None
