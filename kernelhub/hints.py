"""What Python source seems to do, seen in its syntax and without running it. Hints, no proof.

Code that wants to hide what it does can: names can be made at run time, and a list of dangerous
calls is never whole. What is found is worth reading first; that nothing is found means little.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_CALLS: Mapping[str, str] = {
    "eval": "runs text as code",
    "exec": "runs text as code",
    "compile": "runs text as code",
    "__import__": "imports by a computed name",
    "importlib.import_module": "imports by a computed name",
    "os.system": "starts programs",
    "os.popen": "starts programs",
    "open": "opens files",
    "os.remove": "deletes files",
    "os.unlink": "deletes files",
    "shutil.rmtree": "deletes files",
    "os.environ": "reads or sets the environment",
    "os.getenv": "reads or sets the environment",
    "os.putenv": "reads or sets the environment",
    "pickle.load": "unpickles, which can run code",
    "pickle.loads": "unpickles, which can run code",
    "marshal.loads": "loads byte code",
    "torch.load": "unpickles, which can run code",
    "torch.utils.cpp_extension.load": "compiles and loads native code",
    "torch.utils.cpp_extension.load_inline": "compiles and loads native code",
    "torch.ops.load_library": "loads native code",
    "sys.settrace": "watches other code",
    "atexit.register": "runs code when the process ends",
}
_PREFIXES: Mapping[str, str] = {
    "subprocess.": "starts programs",
    "os.spawn": "starts programs",
    "os.exec": "starts programs",
    "os.fork": "starts programs",
    "multiprocessing.": "starts programs",
    "socket.": "opens network connections",
    "urllib.request.": "opens network connections",
    "http.client.": "opens network connections",
    "requests.": "opens network connections",
    "httpx.": "opens network connections",
    "huggingface_hub.": "opens network connections",
    "ctypes.": "calls native code",
    "cffi.": "calls native code",
    "os.environ.": "reads or sets the environment",
}
_METHODS: Mapping[str, str] = {
    "write_text": "writes files",
    "write_bytes": "writes files",
    "unlink": "deletes files",
    "rmdir": "deletes files",
}
_WRITES = frozenset("wax+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """One place worth reading: line from 1, what it seems to do, and the name that says so."""

    line: int
    does: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one file imports and seems to do. `imports` holds top-level modules that are not its
    own and not of the standard library; `fault` tells why it could not be read as Python."""

    imports: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    fault: str | None = None


def look(source: bytes) -> Look:
    """Look at one Python file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the source's own escapes
            tree = ast.parse(source)
        visitor = _Visitor()
        visitor.visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Look(fault=f"{type(error).__name__}: {error}")
    own = {name for name in visitor.imports if name not in sys.stdlib_module_names}
    unique = {(hint.line, hint.does, hint.name): hint for hint in visitor.hints}
    return Look(
        imports=tuple(sorted(own)), hints=tuple(sorted(unique.values(), key=lambda h: h.line))
    )


class _Visitor(ast.NodeVisitor):
    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.hints: list[Hint] = []
        self._names: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imports.add(alias.name.partition(".")[0])
            bound = alias.asname or alias.name.partition(".")[0]
            self._names[bound] = alias.name if alias.asname else bound
            self._note(node.lineno, alias.name, imported=True)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            return
        self.imports.add(node.module.partition(".")[0])
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self._names[alias.asname or alias.name] = full
            self._note(node.lineno, full, imported=True)

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        if name is not None:
            self._call(node, name)
        elif isinstance(node.func, ast.Attribute):
            self._method(node, node.func.attr)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is not None and name.startswith("os.environ"):
            self._note(node.lineno, name)
        self.generic_visit(node)

    def _call(self, node: ast.Call, name: str) -> None:
        if name == "open":
            if does := _opens(node, 1):
                self.hints.append(Hint(line=node.lineno, does=does, name=name))
            return
        self._note(node.lineno, name)
        self._method(node, name.rpartition(".")[2])

    def _method(self, node: ast.Call, attribute: str) -> None:
        does = _METHODS.get(attribute)
        if attribute == "open" and _opens(node, 0) == "writes files":
            does = "writes files"
        if does is not None:
            self.hints.append(Hint(line=node.lineno, does=does, name=attribute))

    def _note(self, line: int, name: str, *, imported: bool = False) -> None:
        does = None if imported else _CALLS.get(name)
        subject = f"{name}." if imported else name
        does = does or next((d for p, d in _PREFIXES.items() if subject.startswith(p)), None)
        if does is not None:
            self.hints.append(Hint(line=line, does=does, name=name))

    def _dotted(self, node: ast.expr) -> str | None:
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self._names.get(node.id, node.id), *reversed(parts)])


def _opens(node: ast.Call, position: int) -> str:
    """What a call of open does by its mode; one that is computed may well write."""
    given = [keyword.value for keyword in node.keywords if keyword.arg == "mode"]
    mode = given[0] if given else (node.args[position] if len(node.args) > position else None)
    if mode is None:
        return "reads files"
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
        return "writes files" if _WRITES & set(mode.value) else "reads files"
    return "writes files"


def summary(looks: Mapping[str, Look]) -> Mapping[str, tuple[str, ...]]:
    """What files seem to do: the kind of it to the places ("ops.py:3 subprocess.run")."""
    found: dict[str, list[str]] = {}
    for path, places in _places(looks):
        for hint in places:
            found.setdefault(hint.does, []).append(f"{path}:{hint.line} {hint.name}")
    return {does: tuple(where) for does, where in sorted(found.items())}


def _places(looks: Mapping[str, Look]) -> Iterator[tuple[str, tuple[Hint, ...]]]:
    for path, found in sorted(looks.items()):
        yield path, found.hints
