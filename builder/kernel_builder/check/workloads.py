"""Rule `workloads`: the file that build.toml names is there."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.project import BUILD_FILE
from kernelhub.errors import Problem

from .source import Subject


def find(subject: Subject) -> Iterator[Problem]:
    """Look for the file that `[tuning] workloads` names."""
    named = subject.build_file.workloads if subject.build_file is not None else None
    if named is not None and not (subject.root / named).is_file():
        yield Problem(
            path=BUILD_FILE,
            at="tuning.workloads",
            message=f"there is no file {named}",
            hint="write it, or take the key out",
            code="missing-workloads",
        )
