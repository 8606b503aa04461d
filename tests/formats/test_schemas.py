"""The JSON Schemas and the two commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder import schemas
from kernel_builder.cli import group
from kernelhub.cli import run
from kernelhub.formats.build_toml import SCHEMA_HINT, parse_build_toml
from kernelhub.formats.json_schema import NAMES, file_name, render

ROOT = Path(__file__).parents[2]
EDITION_4 = '# mine\n[general]\nname = "k2"\nversion = 1\nlicense = "MIT"\nbackends = ["cpu"]\n'
OLD = EDITION_4 + "[torch-noarch]\n"


def test_the_committed_schemas_are_those_of_the_models() -> None:
    assert schemas.drift(ROOT / schemas.FOLDER) == ()


@pytest.mark.parametrize("name", NAMES)
def test_schemas_describe_every_key(name: str) -> None:
    schema = json.loads(render(name))
    assert schema["$id"] == f"urn:kernelhub:schema:v1:{name}"
    tables = {name: schema, **schema["definitions"]}
    undescribed = [
        f"{table}.{key}"
        for table, body in tables.items()
        for key, value in body.get("properties", {}).items()
        if "description" not in value and (table, key) not in _SPEAK_FOR_THEMSELVES
    ]
    assert undescribed == []


_SPEAK_FOR_THEMSELVES = {
    ("Digest", "algorithm"), ("Digest", "files"), ("BuilderVersion", "commit"),
    ("BuilderVersion", "dirty"),
}  # fmt: skip


def test_editors_refuse_unknown_keys_of_authored_files_only() -> None:
    build = json.loads(render("build.toml"))
    assert build["additionalProperties"] is False
    assert build["definitions"]["GeneralTable"]["additionalProperties"] is False
    assert "additionalProperties" not in json.loads(render("metadata.json"))


def test_editors_are_offered_no_null_in_toml() -> None:
    assert "null" not in render("build.toml")


def test_editors_take_both_spellings() -> None:
    table = json.loads(render("build.toml"))["definitions"]["TorchNoarchTable"]
    assert {"rocm_archs", "rocm-archs", "cuda_capabilities", "cuda-capabilities"} <= set(
        table["properties"]
    )
    assert {"not": {"required": ["rocm_archs", "rocm-archs"]}} in table["allOf"]


def test_schemas_agree_with_the_parser() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    import tomlkit

    schema = json.loads(render("build.toml"))
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    for file in sorted(ROOT.glob("examples/*/build.toml")):
        parse_build_toml(file.read_bytes())
        assert validator.is_valid(tomlkit.parse(file.read_text()).unwrap())
    assert not validator.is_valid(tomlkit.parse(OLD).unwrap())


def test_output_then_check_then_drift(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "s"
    assert run(group, ["schema", "--output", str(folder)]) == 0
    assert (folder / Path(SCHEMA_HINT).name).is_file()
    assert run(group, ["schema", "--check", "--output", str(folder)]) == 0
    (folder / file_name("metadata.json")).unlink()
    (folder / file_name("build.toml")).write_text("{}")
    assert run(group, ["schema", "--check", "--output", str(folder)]) == 3
    text = capsys.readouterr().err
    assert "build.toml.schema.json: differs" in text
    assert "metadata.json.schema.json: missing" in text


def test_a_schema_on_standard_output() -> None:
    result = CliRunner().invoke(group, ["schema", "metadata.json"], standalone_mode=False)
    assert result.output == render("metadata.json")


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(group, ["schema", "--output", str(tmp_path / "file" / "s")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_migrate_shows_first_and_writes_when_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "build.toml"
    file.write_bytes(OLD.replace("\n", "\r\n").encode())
    assert run(group, ["migrate", str(tmp_path)]) == 0
    assert "\n+edition = 5\n" in capsys.readouterr().out
    assert file.read_bytes() == OLD.replace("\n", "\r\n").encode()
    assert run(group, ["migrate", str(file), "--write"]) == 0
    assert file.read_bytes().startswith(b"# mine\r\n[general]\r\n")
    assert parse_build_toml(file.read_bytes()).name == "k2"
    assert run(group, ["migrate", str(tmp_path)]) == 0
    assert "already" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["build.toml"]


def test_migrate_tells_what_is_in_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(group, ["migrate", str(tmp_path)]) == 1
    assert "does not exist" in capsys.readouterr().err
    file = tmp_path / "build.toml"
    file.write_text(OLD.replace('license = "MIT"\n', ""))
    assert run(group, ["migrate", str(tmp_path), "--write"]) == 1
    assert "general.license" in capsys.readouterr().err
    assert file.read_text() == OLD.replace('license = "MIT"\n', "")
