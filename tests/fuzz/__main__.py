"""Fuzz the readers of received files with atheris (coverage-guided); not part of the tests.

    pip install atheris                            # CPython 3.11 to 3.13 on Linux
    python tests/fuzz --seconds 60                 # all targets, so many seconds for each
    python tests/fuzz --seconds 600 tree bundle    # some of them

Each target runs in a process of its own. A finding ends it, and its input is written to
`<corpus>/<target>/crash-…`; `python tests/fuzz --reproduce FILE tree` runs one input again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers of received files.")
    parser.add_argument("targets", nargs="*", help="default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--corpus", type=Path, default=Path(tempfile.gettempdir()) / "kernelhub-fuzz"
    )
    parser.add_argument("--reproduce", type=Path, metavar="FILE")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return _fuzz(options)
    from targets import TARGETS

    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; one of {', '.join(TARGETS)}")
    if options.reproduce is not None:
        for name in names:
            TARGETS[name].run(options.reproduce.read_bytes())
        return 0
    failed = [name for name in names if not _passes(name, options)]
    print(
        f"{len(names)} targets, {options.seconds} s each; findings: {', '.join(failed) or 'none'}"
    )
    return 3 if failed else 0


def _passes(name: str, options: argparse.Namespace) -> bool:
    command = [sys.executable, str(Path(__file__).parent), "--one", name]
    command += ["--seconds", str(options.seconds), "--seed", str(options.seed)]
    done = subprocess.run(
        [*command, "--corpus", str(options.corpus)], stderr=subprocess.PIPE, text=True
    )
    lines = done.stderr.splitlines()
    print(
        f"{name}: {'ok' if done.returncode == 0 else 'FINDING'}; {_last_count(lines)}", flush=True
    )
    if done.returncode:
        print("\n".join(lines[-40:]))
    return done.returncode == 0


def _last_count(lines: list[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.startswith("Done ")), "cut short")


def _fuzz(options: argparse.Namespace) -> int:
    import atheris

    with atheris.instrument_imports(include=["kernelhub"]):
        from targets import TARGETS
    target = TARGETS[options.targets[0]]
    folder = options.corpus / options.targets[0]
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup(
        [sys.argv[0], str(folder), f"-max_total_time={options.seconds}", f"-seed={options.seed}",
         "-timeout=10", "-rss_limit_mb=2048", f"-artifact_prefix={folder}/", "-max_len=8192",
         "-print_final_stats=0"],
        target.run,
    )  # fmt: skip
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
