"""The card of a kernel: README.md on the Hub's main branch, made from what was built.

A project's own `CARD.md` is its prose: it takes the place of the opening paragraph. A `CARD.md`
that is a template for HF's builder (it holds `{%` or `{{`) is left to that builder.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from kernelhub.errors import InputError

from .api import PublicFunction, public_functions
from .card_tuning import TuningRow, tuning_rows
from .languages import package_languages
from .manifest import variants_of
from .project import Project

CARD_SOURCE = "CARD.md"
CARD = "README.md"
_SLOWDOWN = (
    "Slowdown is the geometric mean, over shapes, of the chosen configuration's time against the "
    "best one measured."
)
_FRONT_MATTER = re.compile(r"\A---\r?\n.*?\r?\n---\r?\n", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Everything that a card says.

    Attributes:
        repo_id: where the kernel is published, "org/name".
        version: the version that the loading example names.
        variants: "torch-cuda", ... in order.
        languages: kernel languages of the sources.
        functions: public callables, per framework.
        tuning: one row per kernel and device that was measured.
        description: Markdown of the project's own, "" if none.
    """

    repo_id: str
    name: str
    version: int
    license: str
    variants: tuple[str, ...]
    languages: tuple[str, ...]
    functions: tuple[tuple[str, tuple[PublicFunction, ...]], ...]
    tuning: tuple[TuningRow, ...]
    requires: tuple[tuple[str, str], ...]
    upstream: str | None
    source: str | None
    description: str


def make_card(project: Project, repo_id: str) -> Card:
    """Collect what the card of a project says.

    Raises:
        InputError: a source or CARD.md cannot be read.
        MissingExtra: griffe is not installed.
    """
    build_file = project.build_file
    frameworks = sorted(project.packages)
    return Card(
        repo_id=repo_id,
        name=build_file.name,
        version=build_file.version,
        license=build_file.license,
        variants=tuple(str(v) for f in frameworks for v in variants_of(build_file, f)),
        languages=tuple(
            dict.fromkeys(n for f in frameworks for n in package_languages(project, f))
        ),
        functions=tuple((f, public_functions(project.package(f))) for f in frameworks),
        tuning=tuple(row for f in frameworks for row in tuning_rows(project.package(f))),
        requires=tuple(sorted(build_file.requires.items())),
        upstream=build_file.upstream,
        source=build_file.source,
        description=_description(project.root / CARD_SOURCE),
    )


def render_card(card: Card) -> bytes:
    """The text of README.md: YAML front matter, then Markdown. UTF-8."""
    parts = [
        _front_matter(card),
        f"# {card.name}",
        card.description or _opening(card),
        _loading(card),
        _interface(card),
        _tuning(card),
        _facts(card),
    ]
    return ("\n\n".join(part for part in parts if part) + "\n").encode()


def _front_matter(card: Card) -> str:
    tags = ["kernel", *card.languages]
    return "\n".join(
        [
            "---",
            "library_name: kernels",
            f"license: {_yaml(card.license.lower())}",
            "tags:",
            *(f"- {_yaml(tag)}" for tag in tags),
            "---",
        ]
    )


def _yaml(text: str) -> str:
    """A YAML scalar; JSON's strings are YAML's double-quoted ones."""
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", text)
    reserved = text.lower() in {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
    return text if plain and not reserved else json.dumps(text)


def _opening(card: Card) -> str:
    languages = " and ".join(name.capitalize() for name in card.languages)
    kind = f"{languages} kernel" if languages else "kernel"
    return (
        f"`{card.repo_id}` is a {kind}: Python source that is compiled on the machine it runs on."
    )


def _loading(card: Card) -> str:
    first = next((f.name for _, functions in card.functions for f in functions), None)
    call = f"\nkernel.{first}(...)" if first else ""
    return f"""## Load it

```python
from kernelhub import get_kernel

kernel = get_kernel("{card.repo_id}", version={card.version}, trust_remote_code=True){call}
```

`trust_remote_code=True` lets code of this repository run on your machine; publishers that you trust
for good are named in `KERNELHUB_TRUST`. Every file is checked against the published digest before
it is imported.{_peer(card)}"""


def _peer(card: Card) -> str:
    torch = any(variant.startswith("torch-") for variant in card.variants)
    return " HF's `kernels` loads the torch variants as well." if torch else ""


def _interface(card: Card) -> str:
    blocks = []
    for framework, functions in card.functions:
        if not functions:
            continue
        heading = f"### {framework}\n\n" if len(card.functions) > 1 else ""
        rows = [
            f"- `{f.signature}`" + (f": {_one_line(f.summary)}" if f.summary else "")
            for f in functions
        ]
        blocks.append(heading + "\n".join(rows))
    return "\n\n".join(["## Public functions", *blocks]) if blocks else ""


def _tuning(card: Card) -> str:
    if not card.tuning:
        return ""
    rows = [
        f"| `{_cell(row.kernel)}` | {_cell(row.device)} "
        f"| {_mean(row.fitted)} | {_mean(row.held_out)} | {_goal(row)} |"
        for row in card.tuning
    ]
    return "\n".join(
        [
            "## Tuned for",
            "",
            _SLOWDOWN,
            "",
            "| kernel | device | fitted shapes | held-out shapes | goal for each shape |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def _mean(summary: tuple[int, float] | None) -> str:
    return "none" if summary is None else f"{summary[1]:.3f} over {summary[0]}"


def _goal(row: TuningRow) -> str:
    if row.goal is None:
        return "not stated"
    times = f"missed {row.misses} time{'s' * (row.misses > 1)}" if row.misses else "met"
    return f"{row.goal:g}, {times}"


def _facts(card: Card) -> str:
    lines = ["## Variants and licence", "", f"- variants: {', '.join(card.variants)}"]
    if card.requires:
        needs = ", ".join(f"{name} {spec}" for name, spec in card.requires)
        lines.append(f"- requires: {needs}")
    lines.append(f"- licence: {_one_line(card.license) or 'not stated'}")
    if card.upstream:
        lines.append(f"- upstream: {card.upstream}")
    if card.source:
        lines.append(f"- source: {card.source}")
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _one_line(text).replace("|", "\\|")


def _description(path: Path) -> str:
    if not path.is_file():
        return ""
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="save it as UTF-8") from error
    if "{%" in text or "{{" in text:
        return ""
    body = _FRONT_MATTER.sub("", text).strip()
    return re.sub(r"\A# .*\n+", "", body)  # the card has its own title
