"""Rules of `tuning/`: trees parse, have their names and their evidence, and agree with it."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.tuned_files import tuned_file_problems
from kernelhub.errors import Problem

from .source import Subject


def find(subject: Subject) -> Iterator[Problem]:
    """Every file in the `tuning` folders of the packages."""
    for package in subject.packages:
        yield from tuned_file_problems(package.folder, package.files, package.inside)
