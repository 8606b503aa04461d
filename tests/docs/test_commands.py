"""The commands that the documentation shows are run, page by page, and print what it shows."""

from __future__ import annotations

import ast
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

import kernelhub
from kernel_builder.cli import group as kernel_builder
from kernel_builder.hub import Hub
from kernel_builder.init import start_project
from kernel_builder.pack import build
from kernel_builder.project import Project
from kernel_builder.publish import Options, publish
from kernelhub.cli import group as kernelhub_group
from kernelhub.serve.testing import running_hub

from .pages import Command, File, Page, matches, read

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if "adr" not in p.parts)
README = ROOT / "README.md"
RUN = [page for page in (*PAGES, README) if read(page).steps]
GROUPS: Mapping[str, click.Group] = {
    "kernelhub": kernelhub_group,
    "kernel-builder": kernel_builder,
}
PORT = "8765"  # the one that pages name
MARK = "@@ended"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the commands `kernelhub`, `kernel-builder` and `python`, of this Python."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in (("kernelhub", "kernelhub.cli"), ("kernel-builder", "kernel_builder.cli")):
        code = f"from {module} import main; main()"
        _script(folder / name, f'exec {shlex.quote(sys.executable)} -c "{code}" "$@"')
    _script(folder / "python", f'exec {shlex.quote(sys.executable)} "$@"')
    _script(folder / "pytest", f'exec {shlex.quote(sys.executable)} -m pytest "$@"')
    return folder


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture(scope="session")
def gate_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Hub as the tutorial leaves it: versions 1 and 2 of demo/silu-gate; gives its URL."""
    folder = tmp_path_factory.mktemp("gate")
    root = start_project("silu-gate", "triton", folder / "silu-gate")
    file = root / "build.toml"
    with running_hub(folder / "hub") as hub:
        _publish(root, hub.url, folder / "first")
        file.write_text(file.read_text().replace("version = 1\n", "version = 2\n"))
        _publish(root, hub.url, folder / "second")
        yield hub.url


def _publish(root: Path, url: str, output: Path) -> None:
    project = Project.open(root)
    build(project, output)
    repo_id = f"demo/{project.build_file.name}"
    publish(project, Hub(url, None), Options(repo_id=repo_id, output=output))


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", RUN, ids=name_of)
def test_page(path: Path, tools: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = read(path)
    for package in page.facts.get("needs", "").split():
        pytest.importorskip(package)
    folder = tmp_path / "page"
    folder.mkdir()
    environment = {
        **os.environ,
        "HOME": str(tmp_path / "home"),
        "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "COLUMNS": "80",
    }
    if page.facts.get("hub") == "tutorial":
        environment["HF_ENDPOINT"] = request.getfixturevalue("gate_hub")
    faults = run_page(page, folder, environment, free_port())
    assert not faults, "\n\n".join(f"{name_of(path)}:{fault}" for fault in faults)


def run_page(page: Page, folder: Path, environment: Mapping[str, str], port: str) -> list[str]:
    """Run a page in one shell; return what went otherwise than it says."""
    commands = [step for step in page.steps if isinstance(step, Command)]
    done = subprocess.run(
        ["bash", "-c", script(page, folder, port)],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=380, check=False,
    )  # fmt: skip
    text = done.stdout.replace(port, PORT).replace(str(folder), ".")
    *printed, rest = re.split(rf"{MARK} (\d+)\n", text)
    results = list(zip(printed[::2], map(int, printed[1::2]), strict=True))
    faults = [
        fault
        for command, following, (output, code) in zip(
            commands, [*commands[1:], None], results, strict=False
        )
        if (fault := fault_of(command, following, output, code)) is not None
    ]
    if len(results) < len(commands):
        faults.append(f" the shell ended with {done.returncode}: {rest}")
    return faults


def fault_of(command: Command, following: Command | None, output: str, code: int) -> str | None:
    """What is wrong with a command's end. One that may fail is followed by `echo $?`."""
    may_fail = following is not None and following.text == "echo $?"
    if code and not may_fail:
        return f"{command.line}: exit code {code}\n$ {command.text}\n{output}"
    if not matches(command.shown, output):
        return f"{command.line}: printed\n{output}\nin place of\n{command.shown}"
    return None


def script(page: Page, folder: Path, port: str) -> str:
    """The page as one shell script that marks the end of each command."""
    lines = ["trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT", "_last=0"]
    for step in page.steps:
        text = step.text.replace(PORT, port)
        if isinstance(step, File):
            place = shlex.quote(str(folder / step.name))
            lines += [f"mkdir -p $(dirname {place})", f"printf %s {shlex.quote(text)} > {place}"]
        elif step.in_background:
            answers = f"(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null"
            lines += [
                f"{text.rstrip('& ')} >/dev/null 2>&1 &",
                f"for _ in {{1..300}}; do {answers} && break; sleep 0.1; done",
                f"echo '{MARK} 0'",
            ]
        else:
            lines += ["(exit $_last)", text, "_last=$?", f'echo "{MARK} $_last"']
    return "\n".join(lines)


@pytest.mark.parametrize("path", [p for p in (*PAGES, README) if read(p).unrun], ids=name_of)
def test_commands_that_are_not_run_exist(path: Path) -> None:
    for command in read(path).unrun:
        words = shlex.split(command.text, comments=True)
        while words and "=" in words[0]:  # variables of the command
            words.pop(0)
        if words and words[0] in GROUPS:
            assert not (fault := unknown(words)), f"{name_of(path)}:{command.line}: {fault}"


def unknown(words: list[str]) -> str | None:
    """What of a command line our commands do not know."""
    command: click.Command = GROUPS[words[0]]
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            return f"{command.name} has no command {rest[0]}"
        command, rest = found, rest[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    used = [word.partition("=")[0] for word in rest if word.startswith("--")]
    return next(
        (f"{command.name} has no option {word}" for word in used if word not in known), None
    )


@pytest.mark.parametrize("path", [p for p in PAGES if read(p).python], ids=name_of)
def test_python_that_is_not_run_names_what_exists(path: Path) -> None:
    for block in read(path).python:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "kernelhub":
                for alias in node.names:
                    exists = hasattr(kernelhub, alias.name) or find_spec(f"kernelhub.{alias.name}")
                    assert exists, f"{name_of(path)}: {alias.name}"


def test_readme(tmp_path: Path, tools: Path) -> None:
    """Its Python runs, with an example kernel on the Hub; its commands are those of dev.py."""
    pytest.importorskip("triton")
    readme = read(README)
    code = "import torch\nx, weight = torch.randn(3, 40), torch.ones(40)\n"
    code += "\n".join(readme.python)
    code += "\ntorch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (40,), weight, 1e-6))"
    with running_hub(tmp_path / "hub") as hub:
        _publish(ROOT / "examples" / "rms-norm", hub.url, tmp_path / "build")
        environment = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        }
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=380)
    shown = re.findall(r"python3 (dev\.py \w+)", README.read_text())
    assert shown
    assert all(f"python3 {command} " in (ROOT / "dev.py").read_text() for command in shown)


def test_what_the_readme_links_to_and_pages_install_exists() -> None:
    links = re.findall(r"\]\(([^):#]+)\)", README.read_text())
    assert "docs/tutorial/triton.md" in links
    assert not [link for link in links if not (ROOT / link).exists()]
    project = (ROOT / "pyproject.toml").read_text()
    texts = {page: page.read_text() for page in (README, *PAGES)}
    installs = {page: re.findall(r"(?:kernelhub|\.)\[([\w,]+)\]", texts[page]) for page in texts}
    assert installs[README]
    for page, found in installs.items():
        for extra in ",".join(found).split(",") if found else ():
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), f"{name_of(page)}: {extra}"


def test_every_page_is_in_one_of_the_four_parts() -> None:
    parts = {"tutorial", "how-to", "reference", "explanation"}
    inside = {page.relative_to(DOCS).parts[0] for page in PAGES} - {"index.md"}
    assert inside == parts


class TestRunner:
    """The runner notices what it is for."""

    def page(self, tmp_path: Path, text: str) -> list[str]:
        (tmp_path / "page.md").write_text(text)
        page = read(tmp_path / "page.md")
        return run_page(page, tmp_path, dict(os.environ), free_port())

    def test_a_failing_command(self, tmp_path: Path) -> None:
        (fault,) = self.page(tmp_path, "```console\n$ false\n$ true\n```\n")
        assert fault.startswith("2: exit code 1")

    def test_other_output(self, tmp_path: Path) -> None:
        (fault,) = self.page(tmp_path, "```console\n$ echo one\ntwo\n```\n")
        assert "in place of\ntwo" in fault

    def test_a_failure_that_the_page_shows(self, tmp_path: Path) -> None:
        assert not self.page(tmp_path, "```console\n$ false\n$ echo $?\n1\n```\n")

    def test_a_shell_that_ends(self, tmp_path: Path) -> None:
        faults = self.page(tmp_path, "```console\n$ exit 0\n$ true\n```\n")
        assert "the shell ended" in faults[-1]

    def test_files_and_ellipsis(self, tmp_path: Path) -> None:
        text = (
            "```{code-block} text\n:caption: a.txt\n\none\ntwo\nthree\n```\n"
            "```console\n$ cat a.txt\none\n...\nthree\n```\n"
        )
        assert not self.page(tmp_path, text)

    def test_an_option_that_does_not_exist(self) -> None:
        assert unknown(["kernel-builder", "build", ".", "--no-such"]) is not None
        assert unknown(["kernelhub", "cache", "list", "--json"]) is None
