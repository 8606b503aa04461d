"""From the name of a kernel to its module: resolve, choose, fetch, verify, import, bind.

`prepare` holds the steps up to the decision; what a step does is in the room that it names.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PythonRequirement

from . import importer, kernel_deps
from .consents import consent_after
from .disk import is_there
from .errors import about
from .formats.metadata import Metadata
from .package import Package, describe
from .places import FolderPlace, Ready
from .prepare import Found, Located, Terms, choose_in, prepare, terms_of
from .reporter import SILENT, Reporter
from .resolution import requirement_of
from .settings import Settings
from .sources import Source
from .target import is_used
from .trust import Consent, TrustArgument
from .variants import Wish

logger = logging.getLogger(__name__)

_TRITON_IMPORT = re.compile(rb"^\s*(?:import|from)\s+triton\b", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKernel:
    """A kernel of this process.

    Attributes:
        repo_id: where it came from, None for a local folder.
        commit: at which commit, None for a local folder.
        variant: which of its variants.
        folder: the variant's folder on this disk.
        metadata: its metadata.
        module: what `get_kernel` returned.
        consent: why its code was allowed to run.
        interpreted: whether Triton's interpreter runs it.
        binding: what `kernelhub.dispatch` bound to it, None if it has nothing to bind.
        signer: whose signature was verified, None where no policy asks for one.
    """

    repo_id: str | None
    commit: str | None
    variant: str
    folder: Path
    metadata: Metadata
    module: ModuleType
    consent: Consent
    interpreted: bool
    binding: object = None
    signer: str | None = None


def get_kernel(
    repo_id: str,
    version: int | str | None = None,
    revision: str | None = None,
    *,
    framework: str | None = None,
    backend: str | None = None,
    trust_remote_code: TrustArgument = False,
    check_arch: bool = True,
    source: Source | None = None,
    reporter: Reporter = SILENT,
) -> ModuleType:
    """Load a kernel: its variant for this machine, verified, as a module.

    Args:
        repo_id: "org/name"; may carry the pin: "org/name==1", "org/name>=1,<3" or
            "org/name@<commit>".
        version: a version, or a specifier such as ">=1,<3". With no pin at all the newest version
            above 0 is taken and a log line says which.
        revision: a branch, tag or commit. Only a full commit never changes its meaning, and one
            that is on this disk is loaded without a request.
        framework: "torch" or "jax". Default: torch's variants before jax's, as far as torch is here
            and they run; jax's first in a process that has imported jax and not torch.
        backend: a backend to take in place of the one that this machine has ("cpu", "cuda", ...).
        trust_remote_code: True runs code of any publisher, a list that of these repositories as
            well; False only that of publishers whom the Hub marks as trusted or your settings name.
        check_arch: whether the architectures that a build declares must include this device.
        source: where to get it from in place of the Hub of the settings.
        reporter: hears of progress.

    Returns:
        The kernel's package. A second call with the same result returns the same module. What it
        defines can be pickled; a process that unpickles it must have loaded the kernel before.

    Raises:
        InputError: the arguments contradict each other or do not parse.
        RepositoryNotFound, VersionNotFound: the Hub has no such thing.
        NoCompatibleVariant: nothing published runs here; says why for each variant.
        NotCached: offline, and not on this disk.
        TrustError: its publisher may not run code here.
        IntegrityError: bytes are not those that were published, also after a second download.
        HubAuthError, HubRateLimited, HubUnavailable: the Hub, or the way to it.
        StoreError: the local disk.
        DependencyError, LoadError: its code cannot be imported.
    """
    wish = Wish(framework=framework, backend=backend, check_arch=check_arch)
    terms = terms_of(wish, trust_remote_code, source, reporter)
    return _run(prepare(requirement_of(repo_id, version, revision), terms, chain=()), terms)


def get_local_kernel(
    path: str | Path,
    *,
    framework: str | None = None,
    backend: str | None = None,
    trust_remote_code: TrustArgument = False,
    check_arch: bool = True,
    reporter: Reporter = SILENT,
) -> ModuleType:
    """Load a kernel from a folder: a project or repository, its `build/`, or one variant.

    The folder is used where it is, and checked against its digest if it has one. The rest is as for
    `get_kernel`; `trust_remote_code` is for the kernels that it depends on.

    Raises:
        NotFoundError: the folder holds no built kernel.
        IntegrityError: it was changed after it was built.
        NoCompatibleVariant, DependencyError, LoadError: as `get_kernel`.
    """
    wish = Wish(framework=framework, backend=backend, check_arch=check_arch)
    terms = terms_of(wish, trust_remote_code, None, reporter)
    located = Located(place=FolderPlace(Path(path)), title=str(path))
    return _run(choose_in(located, Consent.LOCAL, terms, chain=(located.title,)), terms)


def get_loaded_kernels() -> list[LoadedKernel]:
    """The kernels that this process has loaded, in the order in which that happened."""
    return list(_loaded.values())


_loaded: dict[tuple[str | None, str | None, Path, str], LoadedKernel] = {}
_bindings: dict[str, object] = {}


def _run(found: Found, terms: Terms) -> ModuleType:
    """Fetch, verify, import and bind a kernel, after those that it needs."""
    needs = {repo_id: _run(need, terms) for repo_id, need in found.needs.items()}
    with about(found.title):
        ready = found.located.place.ready(found.verdict.variant)
    consent, signer = found.consent, None
    if (asked := found.located.asked) is not None:
        consent, signer = consent_after(asked, consent, ready.folder, ready.manifest)
    package = describe(
        ready.folder,
        ready.manifest,
        found.metadata.name.replace("-", "_"),
        title=found.title,
        requirements=_requirements(found.metadata),
    )
    _say_if_it_takes_jax_arrays(found, terms.wish)
    _say_if_pallas_is_interpreted(found)
    interpreted = _is_interpreted(found, ready, terms.settings)
    if interpreted:
        _enable_interpreter(found.title)

    def finish(module: ModuleType) -> None:
        _bindings[package.name] = _bind(module, package, found, terms.settings)

    with kernel_deps.offered(needs):
        module = importer.load(package, finish=finish)
    loaded = LoadedKernel(
        repo_id=found.repo_id,
        commit=found.commit,
        variant=found.verdict.variant,
        folder=ready.folder,
        metadata=found.metadata,
        module=module,
        consent=consent,
        signer=signer,
        interpreted=interpreted,
        binding=_bindings.get(package.name),
    )
    _loaded.setdefault((found.repo_id, found.commit, ready.folder, package.name), loaded)
    return module


def _requirements(metadata: Metadata) -> dict[str, str]:
    """Distribution name to the requirement that the kernel declares."""
    texts = [*(metadata.extension.dependencies if metadata.extension else ())]
    texts += metadata.python_depends
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(_distribution(text), text)
    return found


def _distribution(requirement: str) -> str:
    try:
        return PythonRequirement(requirement).name
    except InvalidRequirement:
        return requirement


def _is_interpreted(found: Found, ready: Ready, now: Settings) -> bool:
    """Whether Triton has to interpret: where it may stand in, or must, and the kernel uses it."""
    if not found.target.interpreter or now.interpret is False:
        return False
    if found.metadata.extension is not None and found.metadata.extension.languages:
        return "triton" in found.metadata.extension.languages
    return found.verdict.interpreted or any(
        _TRITON_IMPORT.search((ready.folder / path).read_bytes())
        for path in ready.manifest
        if path.endswith(".py")
    )


_said: set[str] = set()


def _say_once(what: str, text: str, *values: str) -> None:
    """Warn, unless this process has been told so."""
    if what not in _said:
        _said.add(what)
        logger.warning(text, *values)


def _say_if_it_takes_jax_arrays(found: Found, wish: Wish) -> None:
    """A torch program that did not ask for JAX learns how to call what it got; once a kernel."""
    title = found.title
    is_jax = found.verdict.variant.startswith("jax-")
    if is_jax and wish.framework is None and is_used("torch"):
        _say_once(
            f"arrays {title}",
            "%s takes JAX arrays; kernelhub.bridge.as_torch makes its functions take torch tensors"
            " (framework='jax' says that JAX is meant)",
            title,
        )


def _say_if_pallas_is_interpreted(found: Found) -> None:
    """JAX compiles Pallas for accelerators alone."""
    extension, title = found.metadata.extension, found.title
    languages = () if extension is None else extension.languages
    if found.verdict.variant == "jax-cpu" and "pallas" in languages:
        text = "%s: Pallas kernels are interpreted on a CPU, which is slow"
        _say_once(f"pallas {title}", text, title)


def _enable_interpreter(title: str) -> None:
    from .interpreter import enable

    enable()
    text = "%s: Triton kernels run in Triton's interpreter, which is slow"
    _say_once("triton", text, title)  # whichever kernel is the first


def _bind(module: ModuleType, package: Package, found: Found, now: Settings) -> object:
    """Bind trees if the kernel ships any or the user has some, and where launches are recorded."""
    owner, name = (found.repo_id or f"local/{found.metadata.name}").split("/")
    overlays = now.overlays / owner / name
    if not (package.has_any("tuning/") or is_there(overlays) or now.record):
        return None
    bind: Callable[..., object] = importlib.import_module("kernelhub.dispatch").bind
    return bind(module, package.folder, read=package.read, target=found.target, overlays=overlays)
