"""Older editions of build.toml, brought to edition 5."""

from __future__ import annotations

import difflib

import pytest

from kernelhub.errors import FormatError
from kernelhub.formats.build_toml import migrate, parse_build_toml

EDITION_4 = """\
# Which kernel this is.
[general]
version = 3  # bumped for the new layout
name = "my-kernel"
license = "MIT"
backends = [
  "cuda",  # first
  "rocm",
]

# Where it goes.
[general.hub]
repo-id = "org/my-kernel"

[torch-noarch]  # Python only
pyext = ["py"]
"""
EDITION_3 = """\
[general]
    name = "my-kernel"
    license = "MIT"
    backends = ["cuda"]

    # CUDA only
    [general.cuda]
    minver = "12.8"
# the end
"""


def added(old: str, new: str) -> list[str]:
    """The lines that were added; fails if any was removed or changed."""
    difference = list(difflib.ndiff(old.split("\n"), new.split("\n")))
    assert not [line for line in difference if line.startswith("-")]
    return [line[2:] for line in difference if line.startswith("+")]


def test_edition_4_gets_its_number_and_nothing_else() -> None:
    new = migrate(EDITION_4)
    assert added(EDITION_4, new) == ["edition = 5"]
    assert parse_build_toml(new).version == 3


def test_edition_3_gets_a_version_and_its_framework() -> None:
    new = migrate(EDITION_3)
    lines = [line for line in added(EDITION_3, new) if line]
    assert lines == ["    version = 1", "    edition = 5", "[torch-noarch]"]
    build = parse_build_toml(new)
    assert (build.version, build.cuda_minver, set(build.frameworks)) == (1, "12.8", {"torch"})


@pytest.mark.parametrize("edition", [3, 4])
def test_a_number_that_was_written_is_replaced(edition: int) -> None:
    old = EDITION_4.replace('license = "MIT"', f'license = "MIT"\nedition = {edition} # old')
    assert migrate(old) == old.replace(f"edition = {edition}", "edition = 5")


@pytest.mark.parametrize("text", [EDITION_3, EDITION_4])
def test_line_ends_stay_as_they_are(text: str) -> None:
    assert migrate(text.replace("\n", "\r\n")) == migrate(text).replace("\n", "\r\n")


def test_dotted_keys_and_a_missing_last_line_end() -> None:
    old = 'general.name = "my-kernel"\ngeneral.license = "MIT"\ngeneral.backends = []'
    new = migrate(old)
    assert parse_build_toml(new).name == "my-kernel"
    assert new.startswith(
        'general.name = "my-kernel"\ngeneral.version = 1\ngeneral.edition = 5\ngeneral.license'
    )


def test_a_migrated_file_stays_as_it_is() -> None:
    new = migrate(EDITION_3)
    assert migrate(new) == new


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (EDITION_3.replace('    license = "MIT"\n', ""), {"general.license"}),
        (EDITION_4.replace("torch-noarch", "torch"), {"torch"}),
        (EDITION_4 + '[kernel.a]\nbackend = "cuda"\n', {"kernel"}),
        (EDITION_4.replace("version = 3", "edition = 2\nversion = 3"), {"general.edition"}),
        (EDITION_4.replace("version = 3", "edition = 6\nversion = 3"), {"general.edition"}),
        (EDITION_4.replace("version = 3", 'edition = "4"\nversion = 3'), {"general.edition"}),
        (EDITION_3.replace("    name", "    universal = true\n    name"), {"general.universal"}),
        ('[torch]\nname = "k2"\n', {None}),
        ('[general]\n[kernel.a]\nx = 1\n', {"general.license", "general.name", "kernel"}),
        ('general = { name = "kk", license = "MIT", backends = [] }\n', {"general"}),
        ('[general]\n"name" = """\nkk"""\nlicense = "MIT"\nbackends = []\n', {"general"}),
    ],
)  # fmt: skip
def test_what_cannot_be_migrated_is_told(text: str, at: set[str | None]) -> None:
    with pytest.raises(FormatError) as caught:
        migrate(text)
    assert {problem.at for problem in caught.value.problems} == at
    assert all(p.hint or p.at == "general.edition" for p in caught.value.problems)


def test_faults_that_migration_does_not_heal() -> None:
    with pytest.raises(FormatError, match="expected one of"):
        migrate(EDITION_4.replace('"rocm"', '"hip"'))
