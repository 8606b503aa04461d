#!/usr/bin/env python3
"""Set up a development environment in .venv and run something in it. Needs Python >= 3.10 and pip.

    python3 dev.py demo      build, publish to an embedded Hub, get_kernel and run two kernels
    python3 dev.py test      run the tests; further arguments go to pytest, such as
                             -m slow    what the default run leaves out
                             --hypothesis-profile deep --timeout 3600    40 times as many examples
    python3 dev.py lint      ruff, mypy, import contracts, schema drift
    python3 dev.py docs      build the documentation, warnings are errors
    python3 dev.py ci        all of it
    python3 dev.py run ...   run a command of the environment, such as: run kernelhub --help

Only the standard library is used, since nothing else is there yet. The environment is made again
when pyproject.toml or this file changes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = ROOT / ".venv"
SCRIPTS = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
STAMP = ENVIRONMENT / "kernelhub-dev-stamp"


def call(*command: str, **variables: str) -> None:
    """Run one command from the repository root; its failure ends this script with its exit code."""
    print("+", " ".join(command), flush=True)
    path = os.pathsep.join([str(SCRIPTS), os.environ.get("PATH", "")])
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path, **variables}, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)


def python(*arguments: str, **variables: str) -> None:
    """Run the environment's Python."""
    call(str(SCRIPTS / "python"), *arguments, **variables)


def wanted() -> str:
    """What the environment was made from; it is made again when this changes."""
    made_from = (ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
    return hashlib.sha256(made_from + sys.version.encode()).hexdigest()


def set_up() -> None:
    """Make the environment unless it is there and current."""
    if STAMP.exists() and STAMP.read_text() == wanted():
        return
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    # Dependency groups need pip 25.1.
    python("-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1")
    # pip compiles every module, one after the other, for a minute; most of them nobody imports.
    install = ("-m", "pip", "install", "--quiet", "--no-compile")
    python(*install, "--editable", ".[builder,serve]", "--group", "dev")
    # Those that everybody imports: processes that must not write bytecode would compile them anew.
    python("-c", "import jax, torch, triton")
    STAMP.write_text(wanted())


def lint() -> None:
    python("-m", "ruff", "check", ".")
    python("-m", "ruff", "format", "--check", ".")
    python("-m", "mypy")
    call(str(SCRIPTS / "lint-imports"))
    call(str(SCRIPTS / "kernel-builder"), "schema", "--check")


def test(*arguments: str) -> None:
    # One worker more than there are cores: many tests wait, for a Hub that keeps silent, say.
    # At most four: a container's share of a large machine is not seen here.
    workers = min(4, 1 + (os.cpu_count() or 1))
    everything = ("-n", str(workers), "--dist", "worksteal", "-q")
    python("-m", "pytest", *(arguments or everything))


def docs() -> None:
    python("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "site")


def demo() -> None:
    python("examples/demo.py")


def side_by_side(*names: str) -> None:
    """Run commands of this script at the same time, and show what each printed; all must pass."""

    def run(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, __file__, name],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip

    with ThreadPoolExecutor(len(names)) as threads:
        results = list(threads.map(run, names))
    print("".join(done.stdout for done in results), end="", flush=True)
    failed = [name for name, done in zip(names, results, strict=True) if done.returncode]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def ci() -> None:
    # Each of the first three keeps one core busy; the tests have two workers of their own.
    side_by_side("lint", "docs", "demo")
    test()


def main() -> None:
    commands = {"demo": demo, "test": test, "lint": lint, "docs": docs, "ci": ci, "run": call}
    name, *arguments = sys.argv[1:] or [""]
    if name not in commands:
        sys.exit(__doc__)
    set_up()
    commands[name](*arguments)


if __name__ == "__main__":
    main()
