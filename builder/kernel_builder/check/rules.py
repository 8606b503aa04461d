"""The table of rules: what is looked for, under which code, and whether it is a fault or a note.

The documentation's list of rules is generated from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernelhub.errors import Problem

from . import (
    artifacts,
    backends,
    dependencies,
    exports,
    files,
    imports,
    kernels,
    operators,
    relative,
    syntax,
    workloads,
)
from .source import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Attributes:
        name: of the rule.
        find: its problems; each has one of the codes below.
        faults: code to description, of what must be mended.
        notes: code to description, of what is only said.
        compiles: whether it needs Triton and workers; left out with `--no-compile`.
    """

    name: str
    find: Callable[[Subject], Iterator[Problem]]
    faults: Mapping[str, str]
    notes: Mapping[str, str]
    compiles: bool = False


def _unread(subject: Subject) -> Iterator[Problem]:
    for package in subject.packages:
        yield from package.unread


RULES = (
    Rule(
        name="reading",
        find=_unread,
        faults={
            "unreadable": "A module that this user may not read.",
            "not-utf8": "A module that is not UTF-8.",
        },
        notes={},
    ),
    Rule(
        name="syntax",
        find=syntax.find,
        faults={
            "syntax": "Syntax that the oldest Python of general.requires.python does not have. "
            "The parser's knowledge of old versions is limited to statements and expressions: "
            "f-strings of Python 3.12 and missing library functions are not noticed.",
        },
        notes={},
    ),
    Rule(
        name="imports",
        find=imports.find,
        faults={
            "absolute-import": "The package imports itself by its name, in an import statement, "
            "which --fix rewrites, or through importlib."
        },
        notes={},
    ),
    Rule(
        name="relative imports",
        find=relative.find,
        faults={
            "missing-import": "A relative import of a module that the package does not have, or of "
            "a name that the module does not define, outside of try/except ImportError.",
        },
        notes={},
    ),
    Rule(
        name="dependencies",
        find=dependencies.find,
        faults={
            "undeclared-import": "An import that is neither of the standard library of every "
            "declared Python, nor the framework, Triton, the package itself, nor declared.",
        },
        notes={},
    ),
    Rule(
        name="operators",
        find=operators.find,
        faults={
            "op-namespace": "A torch operator registered under a name that is not made by "
            "add_op_namespace_prefix, so that two builds would collide in one process, or looked "
            "up as torch.ops.<package>.",
        },
        notes={},
    ),
    Rule(
        name="exports",
        find=exports.find,
        faults={
            "missing-all": "The package's __init__.py has no __all__.",
            "undefined-export": "A name of __all__ that the package does not define.",
        },
        notes={"dynamic-all": "An __all__ that is computed and was not checked."},
    ),
    Rule(
        name="backends",
        find=backends.find,
        faults={"no-backends": "A framework that build.toml declares without any backend."},
        notes={},
    ),
    Rule(
        name="files",
        find=files.find,
        faults={
            "native-file": "Machine code (ELF, Mach-O, PE, or a suffix of such files): noarch "
            "kernels are source.",
            "bytecode": "A .pyc file outside __pycache__, which Python would import as it stands.",
            "oversized-file": "A Python file over 1 MiB, or any other file over 1 GiB.",
        },
        notes={"large-file": "A file over 32 MiB, which every user will download."},
    ),
    Rule(
        name="artifacts",
        find=artifacts.find,
        faults={
            "tree": "A decision tree in tuning/ that does not parse.",
            "evidence": "An evidence file in tuning/ that is not one.",
            "tree-evidence": "A tree that does not choose what its evidence says it chooses.",
            "tree-name": "A tree whose file is not called <kernel>.<device>.py.",
        },
        notes={"tree-alone": "A tree without evidence beside it, or evidence without a tree."},
    ),
    Rule(
        name="workloads",
        find=workloads.find,
        faults={"missing-workloads": "The file that [tuning] workloads names is not there."},
        notes={},
    ),
    Rule(
        name="kernels",
        find=kernels.find,
        faults={
            "kernel-compile": "A Triton kernel that no configuration compiles for a target.",
            "kernel-shared-memory": "No configuration of a kernel fits a target's shared memory.",
            "kernel-import": "The package cannot be imported, so its kernels were not compiled.",
        },
        notes={
            "kernel-config": "One configuration does not compile or fit; another does.",
            "kernel-spills": "A configuration keeps registers in memory.",
            "kernel-unchecked": "A kernel, or all of them, that was not compiled, and why.",
            "kernel-checked": "What was compiled, as which call launches it.",
        },
        compiles=True,
    ),
)

NOTES = frozenset(code for rule in RULES for code in rule.notes)
