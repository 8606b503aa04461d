"""Would a build break those who use what is published under its version now?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from kernelhub.errors import InputError
from kernelhub.sources import RemoteFile

from .api import Break, find_breaks
from .hub import Hub
from .pack import OUTPUT
from .project import Project


def breaks_of_published(hub: Hub, repo_id: str, head: str, project: Project) -> tuple[Break, ...]:
    """Compare the project's packages with what is published at a commit, framework by framework.

    Downloads the Python files of one variant of each framework, checked against the listing.

    Raises:
        HubError, IntegrityError: they could not be had, or not undamaged.
    """
    remote = hub.tree(repo_id, head)
    found: list[Break] = []
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
