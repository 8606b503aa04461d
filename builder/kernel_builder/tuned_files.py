"""What is wrong with the files of a package's `tuning` folder.

A tree has to parse, be called after its kernel and device, and have its evidence beside it; the two
have to agree: at each point of the evidence the tree chooses what the evidence says it chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kernel_builder.project import TUNING_FOLDER, printable
from kernelhub.errors import FormatError, Problem
from kernelhub.formats.evidence import Evidence, Point, parse_evidence
from kernelhub.formats.tree import Config, Tree, parse
from kernelhub.formats.tree_compile import path_through

_PREFIX = f"{TUNING_FOLDER}/"
_AGAIN = "build it again with `kernel-builder tune --phase build`; do not edit it"


def tuned_file_problems(folder: Path, files: Iterable[str], inside: str) -> Iterator[Problem]:
    """Every fault of the trees and their evidence.

    Args:
        folder: the package's.
        files: names of its files, relative to it.
        inside: what it is called in the problems.
    """
    names = {name for name in files if name.startswith(_PREFIX)}
    for stem in sorted({name.rpartition(".")[0] for name in names}):
        where = printable(f"{inside}/{stem}")
        tree: Tree | list[Problem] | None = None
        evidence: Evidence | list[Problem] | None = None
        if f"{stem}.py" in names:
            tree = _tree(folder / f"{stem}.py", f"{where}.py")
        if f"{stem}.json" in names:
            evidence = _evidence(folder / f"{stem}.json", f"{where}.json")
        yield from tree if isinstance(tree, list) else ()
        yield from evidence if isinstance(evidence, list) else ()
        if isinstance(tree, Tree) and (found := _wrong_name(tree, stem, f"{where}.py")):
            yield found
        if isinstance(tree, Tree) and isinstance(evidence, Evidence):
            yield from _disagreement(tree, evidence, f"{where}.py")
        if tree is None or evidence is None:
            yield _alone(where, tree is not None)


def _tree(file: Path, where: str) -> Tree | list[Problem]:
    try:
        return parse(file.read_bytes().decode("utf-8"), where)
    except UnicodeDecodeError:
        return [Problem(path=where, message="not UTF-8", hint=_AGAIN, code="tree")]
    except FormatError as error:
        return [
            replace(problem, path=where, code="tree", hint=problem.hint or _AGAIN)
            for problem in error.problems
        ]


def _evidence(file: Path, where: str) -> Evidence | list[Problem]:
    try:
        return parse_evidence(file.read_bytes(), where)
    except FormatError as error:
        return [
            replace(problem, path=where, code="evidence", hint=problem.hint or _AGAIN)
            for problem in error.problems
        ]


def _wrong_name(tree: Tree, stem: str, where: str) -> Problem | None:
    name = f"{tree.kernel}.{tree.device.slug}"
    if stem == f"{_PREFIX}{name}":
        return None
    return Problem(
        path=where,
        message=f"holds the tree of {tree.kernel} on {tree.device.name}",
        hint=f"call it {name}.py, where the loader looks for it",
        code="tree-name",
    )


def _disagreement(tree: Tree, evidence: Evidence, where: str) -> Iterator[Problem]:
    told = (evidence.kernel, evidence.source, evidence.device.facts())
    if told != (tree.kernel, tree.source_hash, tree.device):
        yield Problem(
            path=where,
            message="the evidence beside it is of another kernel, source or device",
            hint=_AGAIN,
            code="tree-evidence",
        )
        return
    for point in evidence.points:
        if _choice(tree, evidence, point) != dict(evidence.configs[point.choice]):
            yield Problem(
                path=where,
                message=f"chooses otherwise than its evidence says at {point.case or point.id}: "
                "one of them was edited",
                hint=_AGAIN,
                code="tree-evidence",
            )
            return


def _choice(tree: Tree, evidence: Evidence, point: Point) -> Config | None:
    """What the tree chooses at a point: the first in rank that is a candidate there and runs."""
    try:
        _, leaf = path_through(tree, point.features)
    except (KeyError, TypeError):
        return None
    ranking = [dict(tree.configs[index]) for index in leaf.ranking]
    out = [dict(evidence.configs[c.config]) for c in point.cells if c.pruned or c.reason]
    return next((config for config in ranking if config not in out), ranking[0])


def _alone(where: str, is_tree: bool) -> Problem:
    what = "a tree with no evidence" if is_tree else "evidence with no tree"
    return Problem(
        path=f"{where}.{'py' if is_tree else 'json'}",
        message=f"{what} beside it",
        code="tree-alone",
    )
