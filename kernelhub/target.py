"""Facts of this machine, frozen: what the choice of a variant may depend on.

`detect()` looks without importing torch, triton or jax where package metadata is enough: a build of
torch that knows no accelerator is a CPU, and so is a jax without a plugin.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import settings
from .formats.tpu import chip_of_kind
from .formats.tree_model import DeviceFacts
from .formats.variant import BACKENDS, FRAMEWORKS

logger = logging.getLogger(__name__)


_NOTABLE = ("torch", "triton", "jax", "jaxlib", "helion", "numpy")
_JAX_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm60-plugin", "jax-rocm7-plugin",
                "jax-metal", "libtpu", "libneuronxla")  # fmt: skip
_MPS = "mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One machine, as the choice of a variant sees it.

    Attributes:
        backend: one of BACKENDS, per framework: {"torch": "cuda", "jax": "cpu"}; a framework
            that is not installed is absent.
        device: the accelerator, None on a machine without one.
        python: "3.11.7".
        versions: installed distributions that ranges may name, e.g. {"torch": "2.11.0"}; `.get` of
            a name that is not installed is None.
        platform: "linux-x86_64", "win32-amd64", "darwin-arm64".
        interpreter: whether Triton's interpreter may stand in for a missing GPU.
        jax_first: whether this process uses jax and not torch, so that jax's variants come first.
    """

    backend: Mapping[str, str]
    device: DeviceFacts | None
    python: str
    versions: Mapping[str, str] = field(default_factory=dict)
    platform: str
    interpreter: bool = False
    jax_first: bool = False


class Installed(Mapping[str, str]):
    """Versions of installed distributions, looked up when they are asked for.

    Iterating gives those that kernels commonly name; any other is found by name.
    """

    def __getitem__(self, name: str) -> str:
        version = installed_version(name)
        if version is None:
            raise KeyError(name)
        return version

    def __iter__(self) -> Iterator[str]:
        return (name for name in _NOTABLE if installed_version(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def installed_version(name: str) -> str | None:
    """The version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def detect(frameworks: Iterable[str] = FRAMEWORKS) -> Target:
    """Look at this machine.

    Args:
        frameworks: whose backends to find out; an accelerator's framework may have to be imported
            for it, so ask only for those that matter.

    Returns:
        The facts. A build for an accelerator on a machine where it finds none counts as "cpu".
    """
    jax_first = is_used("jax") and not is_used("torch")
    backends: dict[str, str] = {}
    device: DeviceFacts | None = None
    look = {"torch": _torch, "jax": _jax}
    for framework in (f for f in FRAMEWORKS if f in set(frameworks)):
        found = look[framework]()
        if found is not None:
            backends[framework] = found[0]
            device = device or found[1]
    return Target(
        backend=backends,
        device=device,
        python=platform.python_version(),
        versions=Installed(),
        platform=f"{sys.platform}-{platform.machine().lower()}",
        interpreter=_interpreter(gpu=any(b != "cpu" for b in backends.values())),
        jax_first=jax_first,
    )


_asked: set[str] = set()
"""Frameworks that were imported here, to ask for their devices: no sign that anybody uses them."""


def is_used(framework: str) -> bool:
    """Whether this process has imported it, and not only to look for devices."""
    return framework in sys.modules and framework not in _asked


def _imported(framework: str) -> Any:
    if framework not in sys.modules:
        _asked.add(framework)
    return importlib.import_module(framework)


def _interpreter(*, gpu: bool) -> bool:
    wanted = settings.current().interpret
    allowed = wanted if wanted is not None else not gpu
    return allowed and _location("triton") is not None and _location("numpy") is not None


def _location(package: str) -> Path | None:
    """The folder of an installed top-level package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a half-removed package, or a stand-in without a spec
        return None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


@lru_cache(maxsize=1)
def _torch() -> tuple[str, DeviceFacts | None] | None:
    folder = _location("torch")
    if folder is None:
        return None
    if not _torch_may_have_an_accelerator(folder):
        return "cpu", None
    torch = _imported("torch")
    if torch.cuda.is_available():
        return ("rocm" if torch.version.hip else "cuda"), _cuda_device(torch.cuda)
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "xpu", _xpu_device(torch.xpu)
    if hasattr(torch, "npu") and torch.npu.is_available():
        return "cann", None
    if hasattr(torch, "neuron"):
        return "neuron", None
    if hasattr(torch.backends, "tpu"):
        return "tpu", None
    if getattr(torch.backends, _MPS).is_available():
        return "metal", None
    return "cpu", None


def _torch_may_have_an_accelerator(folder: Path) -> bool:
    """False only for a build whose own `version.py` names no accelerator and that has no add-on."""
    add_ons = ("torch_npu", "torch_neuronx", "torch_tpu")
    if sys.platform == "darwin" or any(_location(name) for name in add_ons):
        return True
    try:
        text = (folder / "version.py").read_text("utf-8")
    except OSError:
        return True
    values = [line.partition("=") for line in text.splitlines()]
    kinds = {"cuda", "hip", "xpu"}
    named = [v.strip() for k, _, v in values if k.partition(":")[0].strip() in kinds]
    return not named or any(value != "None" for value in named)


def _cuda_device(cuda: object) -> DeviceFacts:
    props = cuda.get_device_properties(cuda.current_device())  # type: ignore[attr-defined]
    gcn = getattr(props, "gcnArchName", "")
    is_rocm = gcn.startswith("gfx")
    block = getattr(props, "shared_memory_per_block", 0)
    return DeviceFacts(
        name=props.name,
        arch=gcn.partition(":")[0] if is_rocm else f"sm_{props.major}{props.minor}",
        sm_count=props.multi_processor_count,
        memory=props.total_memory,
        shared_memory=getattr(props, "shared_memory_per_block_optin", block) or block,
    )


def _xpu_device(xpu: object) -> DeviceFacts:
    props = xpu.get_device_properties(xpu.current_device())  # type: ignore[attr-defined]
    return DeviceFacts(
        name=props.name,
        arch=str(getattr(props, "architecture", "")) or "xpu",
        sm_count=getattr(props, "gpu_subslice_count", 0),
        memory=props.total_memory,
        shared_memory=getattr(props, "local_mem_size", 0),
    )


@lru_cache(maxsize=1)
def _jax() -> tuple[str, DeviceFacts | None] | None:
    if _location("jax") is None or _location("jaxlib") is None:
        return None
    if not any(installed_version(plugin) for plugin in _JAX_PLUGINS):
        return "cpu", None
    jax = _imported("jax")
    try:
        device = jax.devices()[0]
    except RuntimeError as error:  # jax's own word for "no backend could be started"
        logger.warning("jax finds no usable device (%s): its kernels are looked for on cpu", error)
        return "cpu", None
    return _jax_backend(device), jax_device_facts(device)


def _jax_backend(device: object) -> str:
    kind = str(getattr(device, "platform", "cpu")).lower()
    if kind == "gpu":
        platform_version = str(getattr(device.client, "platform_version", ""))  # type: ignore[attr-defined]
        return "rocm" if "rocm" in platform_version.lower() else "cuda"
    return kind if kind in BACKENDS else "cpu"


def jax_device_facts(device: object) -> DeviceFacts | None:
    """Facts of a jax device, None for a CPU.

    What jax does not tell is 0. It does not tell a GPU's memory, only how much of it the process
    may take.
    """
    if _jax_backend(device) == "cpu":
        return None
    capability = str(getattr(device, "compute_capability", ""))
    kind = str(getattr(device, "device_kind", ""))
    chip = chip_of_kind(kind)
    if chip is not None:
        return chip.facts
    arch = f"sm_{capability.replace('.', '')}" if capability[:1].isdigit() else capability
    return DeviceFacts(
        name=kind,
        arch=arch or kind.lower().replace(" ", ""),
        sm_count=int(getattr(device, "core_count", 0) or 0),
        memory=0,
        shared_memory=int(getattr(device, "shared_memory_per_block_optin", 0) or 0),
    )
