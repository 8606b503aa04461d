"""Rule `no-backends`: a framework that is declared is built for something."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.project import BUILD_FILE
from kernelhub.errors import Problem

from .source import Subject


def find(subject: Subject) -> Iterator[Problem]:
    """Frameworks of build.toml for which no variant would be built."""
    if subject.build_file is None:
        return
    for framework, facts in subject.build_file.frameworks.items():
        if not facts.backends:
            own = bool(subject.build_file.backends)
            at = f"{framework}-noarch.backends" if own else "general.backends"
            yield Problem(
                path=BUILD_FILE,
                at=at,
                message=f"names no backend, so nothing is built for {framework}",
                hint='name those that the kernel runs on, such as backends = ["cuda"]',
                code="no-backends",
            )
