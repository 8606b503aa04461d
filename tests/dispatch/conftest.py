"""Real Triton under a driver that has a target and no device, and packages of sample kernels."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernelhub.dispatch import Binding, bind
from kernelhub.formats.tree import Tree, render
from kernelhub.target import Target

from .helpers import H200

SAMPLES = Path(__file__).parent / "samples"
_numbers = itertools.count()
# Triton 3.9 warns when it is unset. Part of its cache key, so the same for the whole run.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


class Device:
    """The fake device: what was launched on it, and what it refuses."""

    def __init__(self) -> None:
        self.launches: list[tuple] = []
        self.number = next(_numbers)
        self.stream = 0

    @property
    def last(self) -> tuple:
        return self.launches[-1]


@pytest.fixture
def device() -> Iterator[Device]:
    """Triton's active driver is an sm_90 device on which launches are only noted down."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    device = Device()

    class Launcher:
        def __init__(self, src, metadata):
            self.metadata = metadata

        def __call__(self, x, y, z, stream, function, packed, metadata, enter, exit_, *args):
            if enter is not None:
                enter(metadata)
            device.launches.append(((x, y, z), stream, self.metadata, args))
            if exit_ is not None:
                exit_(metadata)

    class Driver(DriverBase):
        launcher_cls = Launcher

        def __init__(self):
            self.utils = self

        @classmethod
        def is_active(cls):
            return True

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self):
            return device.number

        def get_current_stream(self, _):
            return device.stream

        def set_current_device(self, number):
            device.number = number

        def get_active_torch_device(self):
            return None

        def map_python_to_cpp_type(self, name):
            return name

        def get_device_properties(self, _):
            return {"max_shared_mem": 232_448, "multiprocessor_count": 132, "warpSize": 32,
                    "max_num_regs": 65_536}  # fmt: skip

        def load_binary(self, name, binary, shared, number):
            return object(), object(), 24, 0, 1024

        def unload_module(self, module):
            pass

        def get_benchmarker(self):
            return lambda *_, **__: pytest.fail("something was benchmarked")

    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(Driver())
    yield device
    triton.runtime.driver.set_active(before)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A fresh copy of the sample package, imported under a name of its own."""
    name = f"sample_{next(_numbers)}"
    shutil.copytree(SAMPLES, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
    for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
        del sys.modules[module]


@pytest.fixture
def target() -> Target:
    return Target(backend={"torch": "cuda"}, device=H200, python="3.11.7", platform="linux-x86_64")


@pytest.fixture
def give(package: ModuleType, target: Target, tmp_path: Path) -> Callable[..., Binding]:
    """Writes trees beside the sample kernels (or as overlays) and binds the package."""

    def write_and_bind(*trees: Tree, overlays: tuple[Tree, ...] = (), on: Target = target):
        folder = Path(package.__file__).parent
        mine = tmp_path / "overlays"
        for where, those in ((folder / "tuning", trees), (mine, overlays)):
            where.mkdir(exist_ok=True)
            for tree in those:
                (where / f"{tree.kernel}.{tree.device.slug}.py").write_text(render(tree))
        read = lambda name: (folder / name).read_bytes()  # noqa: E731
        return bind(package, folder, read=read, target=on, overlays=mine)

    return write_and_bind
