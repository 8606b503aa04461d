"""From a project to `build/<variant>/…`: the same bytes on every machine, and whole or not at all.

`plan_build` reads the sources and says what the build consists of; `build` writes it. Because
nothing but the files of the project enters (no time, path, host or user), a build on disk is
up to date exactly if the plan of the project's present files has the same metadata: that is how
`publish` knows a stale build, and no record of the last build is needed.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from kernelhub.errors import FormatError, InputError, IntegrityError, Problem, StoreError
from kernelhub.formats.metadata import parse_metadata
from kernelhub.hashing import CHUNK
from kernelhub.reporter import SILENT, Reporter
from kernelhub.verify import verify_folder

from .build_plan import PlannedFile, PlannedVariant, plan_build
from .project import Project, printable
from .swap import recover, replace_folder
from .tuned_files import tuned_file_problems

OUTPUT = "build"
METADATA = "metadata.json"
WORK = ".kernel-builder"
_LOCK_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What `build` wrote: the folder, the variants in it, and files that were left out."""

    folder: Path
    variants: tuple[PlannedVariant, ...]
    left_out: tuple[str, ...]


def build(project: Project, output: Path | None = None, *, reporter: Reporter = SILENT) -> Built:
    """Build every variant into `output` (default `<project>/build`), replacing it whole.

    The new build is written into a private folder beside it first. An interruption at any instant
    leaves the previous build or the new one; the next build removes what it left behind.

    Raises:
        FormatError: Python files do not parse, or trees and their evidence are not as the tuner
            writes them; carries each of them.
        InputError: a source changed while it was read, or `output` holds what no builder wrote.
        StoreError: the disk is full, read-only or not writable; the previous build stands.
    """
    target = (output or project.root / OUTPUT).absolute()
    variants = plan_build(project)
    if not variants:
        raise InputError(
            f"{project.build_file.name} has nothing to build: no backends",
            hint='for example backends = ["cuda"] in build.toml',
        )
    if problems := [*project.source_problems(), *_tuned_problems(project)]:
        raise FormatError(f"project {project.build_file.name}", problems)
    _refuse_foreign(target)  # before anything is written beside it
    total = sum(file.size for variant in variants for file in variant.files)
    with _disk_errors(target), _work_folder(target) as work:
        recover(target, work)
        _refuse_foreign(target)
        staging = Path(tempfile.mkdtemp(prefix="staging-", dir=work))
        reporter.stage(f"build {project.build_file.name}", total, "bytes")
        for variant in variants:
            _write_variant(staging / variant.name, variant, reporter)
        staging.chmod(0o755)
        replace_folder(staging, target, work)
        reporter.done()
    left_out = tuple(
        f"{package.folder.relative_to(project.root).as_posix()}/{name}"
        for package in project.packages.values()
        for name in package.left_out
    )
    return Built(folder=target, variants=variants, left_out=left_out)


def _tuned_problems(project: Project) -> Iterator[Problem]:
    """What a reader of the trees and their evidence would refuse, or should not believe."""
    for package in project.packages.values():
        inside = package.folder.relative_to(project.root).as_posix()
        for problem in tuned_file_problems(package.folder, package.files, inside):
            if problem.code != "tree-alone":  # older trees came without
                yield problem


def check_build(project: Project, output: Path | None = None) -> Built:
    """The build on disk, after a check that it is whole and made from the present sources.

    Raises:
        InputError: there is no build, or sources or `build.toml` changed since it was made.
        IntegrityError: a file of the build differs from its digest.
    """
    target = (output or project.root / OUTPUT).absolute()
    with _disk_errors(target):
        if not target.is_dir() and (target.parent / WORK).is_dir():
            recover(target, target.parent / WORK)
        found = _variant_folders(target)
    if not found:
        raise InputError(f"{target} holds no build", hint="run `kernel-builder build` first")
    variants = plan_build(project)
    stale = _stale(found, variants)
    if stale:
        raise InputError(
            f"the build in {target} is not of the present sources: {'; '.join(stale)}",
            hint="run `kernel-builder build` again",
        )
    for variant in variants:
        _verify(target / variant.name, (target / variant.name / METADATA).read_bytes())
    return Built(folder=target, variants=variants, left_out=())


def _verify(folder: Path, metadata: bytes) -> None:
    try:
        verify_folder(folder, parse_metadata(metadata, f"{folder.name}/{METADATA}"))
    except IntegrityError as error:
        raise IntegrityError(
            f"{folder} was changed after it was built",
            faults=error.faults,
            hint="run `kernel-builder build` again",
        ) from error


def _stale(found: Mapping[str, Path], variants: tuple[PlannedVariant, ...]) -> list[str]:
    wanted = {variant.name: variant.metadata for variant in variants}
    reasons = [f"{name} is not built" for name in sorted(wanted.keys() - found.keys())]
    reasons += [f"{name} is no longer declared" for name in sorted(found.keys() - wanted.keys())]
    reasons += [
        f"{name} differs"
        for name in sorted(wanted.keys() & found.keys())
        if found[name].read_bytes() != wanted[name]
    ]
    return reasons


def _variant_folders(target: Path) -> dict[str, Path]:
    """Variant name to its metadata file, for every variant folder in a build folder."""
    if not target.is_dir():
        return {}
    return {
        entry.name: entry / METADATA
        for entry in sorted(target.iterdir())
        if (entry / METADATA).is_file()
    }


def _refuse_foreign(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(
            f"{target} is not a folder of its own",
            hint="remove it, or name another place with --output",
        )
    if not target.is_dir():
        return
    foreign = sorted({entry.name for entry in target.iterdir()} - _variant_folders(target).keys())
    if foreign:
        names = ", ".join(printable(name) for name in foreign)
        raise InputError(
            f"{target} holds what no build wrote: {names}",
            hint="a build replaces the whole folder: move these away, or use --output",
        )


def _write_variant(folder: Path, variant: PlannedVariant, reporter: Reporter) -> None:
    folder.mkdir(mode=0o755)
    for file in variant.files:
        place = folder / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        _write_file(place, file)
        reporter.advance(file.size, f"{variant.name}/{file.path}")
    (folder / METADATA).write_bytes(variant.metadata)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask says


def _write_file(place: Path, file: PlannedFile) -> None:
    if file.source is None:
        place.write_bytes(file.content)
        return
    state = hashlib.sha256()
    with file.source.open("rb") as reader, place.open("xb") as writer:
        while chunk := reader.read(CHUNK):
            state.update(chunk)
            writer.write(chunk)
    if state.hexdigest() != file.sha256:
        raise InputError(f"{file.source} changed while it was built", hint="build again")


@contextmanager
def _work_folder(target: Path) -> Iterator[Path]:
    """The private folder beside a build, held by one process; leftovers of dead ones removed."""
    work = target.parent / WORK
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n")
    try:
        with FileLock(work / "lock", timeout=_LOCK_SECONDS):
            try:
                _remove_staging(work)
                yield work
            finally:
                _remove_staging(work)  # a signal may come before its name is known
    except Timeout as error:
        raise StoreError(
            f"another build of {target} has been running for {_LOCK_SECONDS:.0f} s",
            hint="wait for it or end it",
        ) from error


def _remove_staging(work: Path) -> None:
    for leftover in work.glob("staging-*"):
        shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StoreError(
            f"cannot write the build to {target}: {reason}",
            hint="free some space; the previous build is untouched"
            if full
            else "check the folder's permissions, or name another place with --output",
        ) from error
