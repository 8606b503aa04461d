#!/usr/bin/env python3
"""Set up a development environment in .venv and run something in it. Needs Python >= 3.10 and pip.

    python3 dev.py demo      build, publish to an embedded Hub, get_kernel and run two kernels
    python3 dev.py test      run the tests; further arguments go to pytest
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
    python("-m", "pip", "install", "--quiet", "--editable", ".[builder,serve]", "--group", "dev")
    STAMP.write_text(wanted())


def lint() -> None:
    python("-m", "ruff", "check", ".")
    python("-m", "ruff", "format", "--check", ".")
    python("-m", "mypy")
    call(str(SCRIPTS / "lint-imports"))
    call(str(SCRIPTS / "kernel-builder"), "schema", "--check")


def test(*arguments: str) -> None:
    python("-m", "pytest", *(arguments or ("-n", "2", "-q")))


def docs() -> None:
    python("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "site")


def demo() -> None:
    python("examples/demo.py")


def ci() -> None:
    lint()
    docs()
    test()
    demo()


def main() -> None:
    commands = {"demo": demo, "test": test, "lint": lint, "docs": docs, "ci": ci, "run": call}
    name, *arguments = sys.argv[1:] or [""]
    if name not in commands:
        sys.exit(__doc__)
    set_up()
    commands[name](*arguments)


if __name__ == "__main__":
    main()
