"""The digest, against vectors made with HF's client."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelhub.formats.digest import (
    Algorithm,
    Digest,
    compare,
    encode,
    faults,
    hash_bytes,
    is_hashed,
)

VECTORS: list[tuple[bytes, str, str]] = [
    (
        b"",
        "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
        "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    ),
    (
        b"hello world",
        "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=",
        "MJ7MSJwS1utMxA9QyQLytNDtd+5RGnx6m808qG1M2G+YndNbxf9JlnDaNCVbRbDP2DDoH2Bdz33FVC6TrpzXbw==",
    ),
    (
        b'__all__ = ["f"]\n',
        "/KardTdWp3FPaa2jJM6+G3oyWTU6keEvL/51odIwfVQ=",
        "emMo1/fQtveQnnBcqLa68zp1tmpJGRCZxxipoHMnWKuKRrjaVBcB13y6U1fbBpPRbHgyrzptC+hWjsqrOHKc/w==",
    ),
    (
        b'{"BLOCK_M": 64}\n',
        "War2Rsm9MUavUtO+AgpA8i53FDmJMFOVnz3WPMqnlXs=",
        "WZE6Ka+4/21QOtl+1jZi7Va0TL/aBfax+7a8Voe3S6ec6fagtfFqNOc8YtSv8gyEhMRiTytT943JBvpjM9WHUQ==",
    ),
    (
        bytes(range(256)),
        "QK/y6dLYki5Hr9RkjmlnSXFYeF+9Hahw5xECZr+USIA=",
        "HnuAvI7cVSyP7rJ4DhEUd+W8cEZfrBp3sps1mAw/DOSgNqbJRiA2gkvVaAHmKvfp/rpcIu2KWvh3v33hF9ysbQ==",
    ),
    (
        b"a\r\nb\r\n",
        "WAVb3Mc3h+uIx4028LSTnpxdwcOtF+JcyFpoM88aDKs=",
        "8zlq25T/xCJ//h87otVbmu3RAzOCTyDtO4ySWNzIuCiOTDjB3QtLHSmE3sN4lekNdVdY7CieF8OoD8b1LxZ4SA==",
    ),
]

FOLDER: dict[str, bytes] = {
    ".hidden": b"h",
    "__init__.py": b'__all__ = ["f"]\n',
    "a.pyo": b"o",
    "data/cfg.json": b'{"BLOCK_M": 64}\n',
    "sub/metadata.json": b"{}",
    "unicode_é.py": "é\n".encode(),
    "metadata.json": b"anything",
    "metadata.json.sigstore": b"anything",
    "x.pyc": b"anything",
    "__pycache__/m.cpython-311.pyc": b"anything",
}
FOLDER_DIGEST = {
    ".hidden": "qqlAJmTxpB9A67xSyZk+tmrrNmYClY/fqig7ceZNsSM=",
    "__init__.py": "/KardTdWp3FPaa2jJM6+G3oyWTU6keEvL/51odIwfVQ=",
    "a.pyo": "ZcdMFaaGGHu2u/mVj0lPxrgAaANKZZqa1EmRsIxY8tI=",
    "data/cfg.json": "War2Rsm9MUavUtO+AgpA8i53FDmJMFOVnz3WPMqnlXs=",
    "sub/metadata.json": "RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=",
    "unicode_é.py": "7dOoY4cqBCOesprUvBL8iSs9SuV8x+eGo2l4FvjhQcI=",
}


@pytest.mark.parametrize(("data", "sha256", "sha512"), VECTORS)
def test_vectors_of_contents(data: bytes, sha256: str, sha512: str) -> None:
    assert hash_bytes(data) == sha256
    assert hash_bytes(data, "sha512") == sha512


def test_vector_of_a_folder() -> None:
    hashed = {path: hash_bytes(data) for path, data in FOLDER.items() if is_hashed(path)}
    assert hashed == FOLDER_DIGEST


@pytest.mark.parametrize(
    ("path", "hashed"),
    [
        (".pyc", True),  # a file that is only called so has no extension
        ("..pyc", False),
        ("a.PYC", True),
        ("d.pyc/x", True),
        ("x__pycache__/a", True),
        ("a/__pycache__/b.txt", False),
        ("sub/metadata.json.sigstore", True),
        ("METADATA.JSON", True),
    ],
)
def test_which_files_count(path: str, hashed: bool) -> None:
    assert is_hashed(path) is hashed


def test_compare_names_each_fault() -> None:
    expected = Digest(algorithm="sha256", files={"a": hash_bytes(b"a"), "b": hash_bytes(b"b")})
    actual = Digest(algorithm="sha256", files={"b": hash_bytes(b"B"), "c": hash_bytes(b"c")})
    assert compare(expected, expected) == {}
    found = compare(expected, actual)
    assert found["a"] == "missing"
    assert hash_bytes(b"b") in found["b"]
    assert hash_bytes(b"B") in found["b"]
    assert found["c"] == "not part of what was published"
    assert set(found) == {"a", "b", "c"}


@pytest.mark.parametrize("files", [{}, {"a": hash_bytes(b"a")}])
def test_digests_of_two_algorithms_are_never_equal(files: dict[str, str]) -> None:
    expected = Digest(algorithm="sha256", files=files)
    actual = Digest(algorithm="sha512", files={p: hash_bytes(b"a", "sha512") for p in files})
    assert compare(expected, actual)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("../a", hash_bytes(b"")),
        ("/a", hash_bytes(b"")),
        ("a\\b", hash_bytes(b"")),
        ("a", ""),
        ("a", "zz"),
        ("a", hash_bytes(b"").rstrip("=")),
        ("a", hash_bytes(b"") + "\n"),
        ("a", hash_bytes(b"").replace("+", "-")),
        ("a", hash_bytes(b"")[:-2] + "V="),  # padding bits set: decodes to the same bytes
        ("a", hash_bytes(b"", "sha512")),
        ("a", "é" * 44),
        ("metadata.json", hash_bytes(b"")),
        ("__pycache__/m.pyc", hash_bytes(b"")),
    ],
)
def test_faults_of_a_received_digest(path: str, value: str) -> None:
    good = {"z.py": hash_bytes(b"")}
    assert set(faults(Digest(algorithm="sha256", files={**good, path: value}))) == {path}


def test_nothing_lies_below_a_file() -> None:
    value = hash_bytes(b"")
    assert set(faults(Digest(algorithm="sha256", files={"a": value, "a/b/c": value}))) == {"a/b/c"}


@given(st.binary(max_size=64), st.sampled_from(["sha256", "sha512"]))
def test_hashes_made_here_are_believed(data: bytes, algorithm: Algorithm) -> None:
    value = hash_bytes(data, algorithm)
    assert encode(base64.b64decode(value)) == value
    assert faults(Digest(algorithm=algorithm, files={"f": value})) == {}
