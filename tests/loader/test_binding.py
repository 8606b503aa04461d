"""Trees of a kernel are bound before it is handed out; a kernel without any costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import published
import pytest

from kernelhub import get_kernel, get_loaded_kernels
from kernelhub.errors import IntegrityError
from kernelhub.settings import scope

Publish = Callable[..., str]
TRUST = {"trust_remote_code": True}

KERNEL = b"""from kernelhub import tunable

MARK = %d

@tunable(configs=[{"block": 1}, {"block": 2}])
def run(n, *, block):
    return block
"""
TREE = b"# not a tree, and read by nobody before it is needed\n"


def binding_of(repo_id: str) -> object:
    return next(k.binding for k in reversed(get_loaded_kernels()) if k.repo_id == repo_id)


def test_bundled_trees_are_bound(publish: Publish) -> None:
    files = {"__init__.py": KERNEL % 1, "tuning/run.nvidia-h200.py": TREE}
    publish("demo/tuned", published.variant(files))
    get_kernel("demo/tuned", version=1, **TRUST)
    bound = binding_of("demo/tuned")
    assert list(bound.tunables) == ["run"]
    assert [file.data for file in bound.files["run"]] == [TREE]


def test_the_users_own_trees_are_bound(publish: Publish, tmp_path: Path) -> None:
    publish("demo/plain", published.variant({"__init__.py": KERNEL % 2}))
    own = tmp_path / "overlays" / "demo" / "plain"
    own.mkdir(parents=True)
    (own / "run.nvidia-h200.py").write_bytes(TREE)
    with scope(overlays=tmp_path / "overlays"):
        get_kernel("demo/plain", version=1, **TRUST)
    assert [file.overlay for file in binding_of("demo/plain").files["run"]] == [True]


def test_without_trees_nothing_is_bound(publish: Publish) -> None:
    publish("demo/none", published.variant({"__init__.py": KERNEL % 3}))
    get_kernel("demo/none", version=1, **TRUST)
    assert binding_of("demo/none") is None


def test_a_binding_that_fails_is_a_failed_load(publish: Publish) -> None:
    """The kernel spoils its own tree while it is imported: strict, that is an error of the load."""
    code = KERNEL % 4 + (
        b"from pathlib import Path\n"
        b"(Path(__file__).parent / 'tuning' / 'run.nvidia-h200.py').write_bytes(b'evil')\n"
    )
    files = {"__init__.py": code, "tuning/run.nvidia-h200.py": TREE}
    publish("demo/spoilt", published.variant(files))
    with scope(strict=True), pytest.raises(IntegrityError, match="changed after it was verified"):
        get_kernel("demo/spoilt", version=1, **TRUST)
    assert "demo/spoilt" not in [k.repo_id for k in get_loaded_kernels()]
