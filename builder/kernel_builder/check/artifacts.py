"""Rules of `tuning/`: trees parse, are called after their kernel and device, and have evidence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from kernel_builder.project import TUNING_FOLDER, printable
from kernelhub.errors import FormatError, Problem
from kernelhub.formats.tree import Tree, parse

from .source import PackageSource, Subject

_PREFIX = f"{TUNING_FOLDER}/"


def find(subject: Subject) -> Iterator[Problem]:
    """Every file in the `tuning` folders of the packages."""
    for package in subject.packages:
        names = [name for name in package.files if name.startswith(_PREFIX)]
        stems = {name.rpartition(".")[0] for name in names}
        for stem in sorted(stems):
            tree, evidence = f"{stem}.py" in names, f"{stem}.json" in names
            if tree:
                yield from _tree(package, f"{stem}.py")
            if evidence:
                yield from _evidence(package, f"{stem}.json")
            if tree != evidence:
                yield _alone(package, stem, tree)


def _tree(package: PackageSource, name: str) -> Iterator[Problem]:
    where = printable(f"{package.inside}/{name}")
    try:
        tree = parse((package.folder / name).read_bytes().decode("utf-8"), where)
    except UnicodeDecodeError:
        yield Problem(path=where, message="not UTF-8", hint="tune again", code="tree")
        return
    except FormatError as error:
        for problem in error.problems:
            yield replace(
                problem, path=where, code="tree", hint=problem.hint or "tune again; do not edit it"
            )
        return
    if name != _file_of(tree):
        yield Problem(
            path=where,
            message=f"holds the tree of {tree.kernel} on {tree.device.name}",
            hint=f"call it {_file_of(tree)}, where the loader looks for it",
            code="tree-name",
        )


def _file_of(tree: Tree) -> str:
    return f"{_PREFIX}{tree.kernel}.{tree.device.slug}.py"


def _evidence(package: PackageSource, name: str) -> Iterator[Problem]:
    where = printable(f"{package.inside}/{name}")
    try:
        content = json.loads((package.folder / name).read_bytes())
    except (ValueError, RecursionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        message = f"not JSON: {error}" if isinstance(error, ValueError) else "too deeply nested"
        yield Problem(path=where, line=line, message=message, hint="tune again", code="evidence")
        return
    if not isinstance(content, dict):
        yield Problem(path=where, message="not a JSON object", hint="tune again", code="evidence")


def _alone(package: PackageSource, stem: str, tree: bool) -> Problem:
    have, lack = ("tree", "evidence") if tree else ("evidence", "tree")
    return Problem(
        path=printable(f"{package.inside}/{stem}.{'py' if tree else 'json'}"),
        message=f"a {have} with no {lack} beside it"
        if tree
        else f"{have} with no {lack} beside it",
        code="tree-alone",
    )
