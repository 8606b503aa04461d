"""List every benchmark, its newest committed figures, and which targets they miss.

python -m benchmarks
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

HERE = Path(__file__).resolve().parent


def scripts() -> dict[str, str]:
    """Every script here that can be run, with the first line of its docstring."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not path.name.startswith("_") and 'if __name__ == "__main__"' in text:
            found[path.stem] = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    return found


def show_results(script: str) -> None:
    """Print the figures of each committed file of a script: `<script>[.<device>].json`."""
    for path in sorted((HERE / "results").glob(f"{script}*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if path.name.split(".")[0] != script or "figures" not in data:
            continue
        print(f"  {path.name}: {data.get('command', '')}")
        for figure in data["figures"]:
            verdict = {None: "", True: "met", False: "MISSED"}[figure["met"]]
            target = "" if figure["target"] is None else f"target {figure['target']:g}"
            value = f"{figure['value']:.4g} {figure['unit']}".rstrip()
            peer = figure.get("peer")
            against = "" if peer is None else f"peer {peer}"
            print(
                f"    {figure['name']:60} {value:>14}  {target:12} {verdict:7} {against}".rstrip()
            )


def main() -> None:
    for script, summary in scripts().items():
        print(f"{script}: {summary}")
        show_results(script)


if __name__ == "__main__":
    main()
