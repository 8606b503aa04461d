"""`build.toml`: text -> `BuildFile`, or every fault of it with line, place and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelhub.errors import FormatError

from .build_checks import edition_problem, reads_as_edition_5, structure_problems, without_reported
from .build_model import EDITION, BuildToml, KernelDepends, NoarchTable, TorchNoarchTable
from .migrate import to_edition_5
from .models import Location, problem, validate
from .names import python_name
from .toml_lines import Positions, load_toml
from .variant import Backend

SCHEMA_HINT = "#:schema ./.kernel-builder/build.toml.schema.json"
"""First line of a new build.toml: editors that know the hint (Taplo, Even Better TOML) complete and
check keys from that file. It is relative, so it works offline; `kernel-builder schema --output
.kernel-builder` writes it."""

_UNKNOWN = frozenset({"unknown-key", "missing-key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework table.

    Attributes:
        pyext: extensions of the files that belong to the kernel, without dots.
        cuda_capabilities: "9.0" and the like; None for any. Never set for JAX.
        rocm_archs: "gfx942" and the like; None for any. Never set for JAX.
        backends: those that variants are built for, each once, in the order of the file.
    """

    pyext: tuple[str, ...]
    cuda_capabilities: tuple[str, ...] | None = None
    rocm_archs: tuple[str, ...] | None = None
    backends: tuple[Backend, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFile:
    """A kernel project's build.toml.

    Attributes:
        name: of the kernel, "flash-attn"; `python_name` is that of its package, "flash_attn".
        version: of the interface, published on the branch v<version>.
        license: SPDX identifier as the author wrote it.
        backends: each once, in the order of the file; may be empty.
        upstream, source: git URLs as written.
        python_depends, kernel_depends: the general ones; `*_for` adds those of a backend.
        hub_repo_id: where it is published, None if not said.
        branch: where it is published, `v<version>` if not said.
        cuda_minver, cuda_maxver: "12.8" or None.
        frameworks: "torch" and "jax", those that the file has.
        requires: tool (python, torch, triton, jax, helion) to PEP 440 specifiers.
        dependencies: PEP 508.
        workloads: path of the tuning workloads relative to the project, or None.
    """

    name: str
    python_name: str
    version: int
    license: str
    backends: tuple[Backend, ...]
    upstream: str | None = None
    source: str | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDepends, ...] = ()
    hub_repo_id: str | None = None
    branch: str
    cuda_minver: str | None = None
    cuda_maxver: str | None = None
    frameworks: Mapping[str, Framework]
    requires: Mapping[str, str] = field(default_factory=dict)
    dependencies: tuple[str, ...] = ()
    workloads: str | None = None
    backend_python_depends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    backend_kernel_depends: Mapping[str, tuple[KernelDepends, ...]] = field(default_factory=dict)

    def python_depends_for(self, backend: str) -> tuple[str, ...]:
        """Curated packages that a variant of this backend needs."""
        return self.python_depends + self.backend_python_depends.get(backend, ())

    def kernel_depends_for(self, backend: str) -> tuple[KernelDepends, ...]:
        """Kernels that a variant of this backend loads."""
        return self.kernel_depends + self.backend_kernel_depends.get(backend, ())


def parse_build_toml(text: str | bytes, path: str = "build.toml") -> BuildFile:
    """Read a build.toml of edition 5.

    Args:
        text: its text, or its bytes as they are on disk.
        path: its name in error texts, relative to the project.

    Raises:
        FormatError: every fault of the file; a file of another edition has that one fault.
    """
    raw, positions = load_toml(text, path)
    edition = edition_problem(raw, path, positions)
    if edition is not None and not reads_as_edition_5(raw):
        raise FormatError(path, [edition])
    found = structure_problems(raw, path, positions)
    model, errors = validate(BuildToml, without_reported(raw))
    found += [
        problem(error, model=BuildToml, path=path, position=_finder(positions))
        for error in errors
        if edition is None or error["loc"] != ("general", "edition")
    ]
    if edition is not None:
        found.insert(0, edition)
    if found or model is None:
        raise FormatError(path, sorted(found, key=lambda p: (p.line or 0, p.column or 0)))
    return _build_file(model)


def migrate(text: str, path: str = "build.toml") -> str:
    """Bring a build.toml of edition 3 or 4 to edition 5; comments and order are kept.

    A file of edition 5 is returned as it is.

    Raises:
        FormatError: it is of another edition, needs something that only its author knows (such as
            the licence), builds compiled code, or would not be a sound file of edition 5.
    """
    raw, _ = load_toml(text, path)
    general = raw.get("general")
    if not (isinstance(general, dict) and general.get("edition") == EDITION):
        text = to_edition_5(text, path)
    parse_build_toml(text, path)
    return text


def _finder(where: Positions) -> Any:
    def find(location: Location, code: str) -> tuple[int, int]:
        other = tuple(p.replace("_", "-") if isinstance(p, str) else p for p in location)
        known = location if location in where.keys else other
        return where.key(known) if code in _UNKNOWN else where.value(known)

    return find


def _build_file(model: BuildToml) -> BuildFile:
    general = model.general
    hub, cuda = general.hub, general.cuda
    tables = {"cuda": cuda, "neuron": general.neuron, "xpu": general.xpu, "tpu": general.tpu}
    backends = _unique(general.backends)
    return BuildFile(
        name=general.name,
        python_name=python_name(general.name),
        version=general.version,
        license=general.license,
        backends=backends,
        upstream=general.upstream,
        source=general.source,
        python_depends=general.python_depends,
        kernel_depends=general.kernel_depends,
        hub_repo_id=hub.repo_id if hub else None,
        branch=(hub.branch if hub else None) or f"v{general.version}",
        cuda_minver=cuda.minver if cuda else None,
        cuda_maxver=cuda.maxver if cuda else None,
        frameworks={
            framework: _framework(table, backends)
            for framework, table in (("torch", model.torch_noarch), ("jax", model.jax_noarch))
            if table is not None
        },
        requires=general.requires.model_dump(exclude_none=True) if general.requires else {},
        dependencies=general.dependencies,
        workloads=model.tuning.workloads if model.tuning else None,
        backend_python_depends={
            backend: table.python_depends
            for backend, table in tables.items()
            if table is not None and table.python_depends
        },
        backend_kernel_depends={
            backend: table.kernel_depends
            for backend, table in (("cuda", cuda), ("neuron", general.neuron), ("xpu", general.xpu))
            if table is not None and table.kernel_depends
        },
    )


def _framework(table: NoarchTable, every: tuple[Backend, ...]) -> Framework:
    torch = table if isinstance(table, TorchNoarchTable) else None
    return Framework(
        pyext=table.pyext,
        cuda_capabilities=torch.cuda_capabilities if torch else None,
        rocm_archs=torch.rocm_archs if torch else None,
        backends=every if table.backends is None else _unique(table.backends),
    )


def _unique(backends: tuple[Backend, ...]) -> tuple[Backend, ...]:
    """HF's parser takes a backend twice; it means the same as once."""
    return tuple(dict.fromkeys(backends))
