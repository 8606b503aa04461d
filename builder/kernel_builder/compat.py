"""Would a build break those who use what is published under its version now?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernelhub.errors import InputError
from kernelhub.formats.metadata import parse_metadata
from kernelhub.sources import RemoteFile

from .api import Break, find_breaks
from .build_plan import plan_build
from .compat_variants import requirement_breaks, variant_breaks
from .hub import Hub
from .pack import METADATA, OUTPUT
from .project import Project


def breaks_of_published(hub: Hub, repo_id: str, head: str, project: Project) -> tuple[Break, ...]:
    """Compare the project's packages with what is published at a commit, framework by framework.

    Downloads the Python files and metadata of one variant of each framework, checked against the
    listing.

    Raises:
        HubError, IntegrityError: they could not be had, or not undamaged.
    """
    remote = hub.tree(repo_id, head)
    planned = {variant.name: variant.metadata for variant in plan_build(project)}
    published = _published_metadata(remote)
    found: list[Break] = list(variant_breaks(published, planned))
    found += _tighter(hub, repo_id, head, published, planned)
    for framework in sorted(project.packages):
        folder = _published_package(remote, framework, project.build_file.python_name)
        if folder is None:
            continue
        files = [
            file
            for file in remote
            if file.path.startswith(folder) and file.path.endswith((".py", ".pyi"))
        ]
        with tempfile.TemporaryDirectory() as temporary:
            hub.download(repo_id, head, files, Path(temporary))
            old = Path(temporary) / "published" / project.build_file.python_name
            old.parent.mkdir()
            (Path(temporary) / folder.rstrip("/")).rename(old)
            found += _compare(old, project.package(framework))
    return tuple(dict.fromkeys(found))


def _published_metadata(remote: Iterable[RemoteFile]) -> dict[str, RemoteFile]:
    """Variant name to its metadata file."""
    found = {}
    for file in remote:
        parts = file.path.split("/")
        if len(parts) == 3 and parts[0] == OUTPUT and parts[2] == METADATA:
            found[parts[1]] = file
    return found


def _tighter(
    hub: Hub,
    repo_id: str,
    head: str,
    published: Mapping[str, RemoteFile],
    planned: Mapping[str, bytes],
) -> list[Break]:
    """Requirements of one variant of each framework: all of its variants have the same."""
    common = {name.split("-")[0]: name for name in sorted(published.keys() & planned.keys())}
    found: list[Break] = []
    with tempfile.TemporaryDirectory() as temporary:
        files = [published[name] for name in common.values()]
        hub.download(repo_id, head, files, Path(temporary))
        for name in common.values():
            path = published[name].path
            try:
                old = parse_metadata((Path(temporary) / path).read_bytes(), path)
            except InputError as error:
                found.append(Break(name=name, what=f"cannot be compared: {error.message}"))
                continue
            found += requirement_breaks(old, parse_metadata(planned[name], path))
    return found


def _compare(old: Path, new: Path) -> tuple[Break, ...]:
    try:
        return find_breaks(old, new)
    except InputError as error:
        return (Break(name=new.name, what=f"cannot be compared: {error.message}"),)


def _published_package(
    remote: Iterable[RemoteFile], framework: str, python_name: str
) -> str | None:
    """Folder (with a trailing `/`) of a published package of the framework: all hold the same."""
    paths = {file.path for file in remote}
    variants = sorted(
        {path.split("/")[1] for path in paths if path.startswith(f"{OUTPUT}/{framework}")}
    )
    for variant in variants:
        for folder in (f"{OUTPUT}/{variant}/", f"{OUTPUT}/{variant}/{python_name}/"):
            if f"{folder}__init__.py" in paths:
                return folder
    return None
