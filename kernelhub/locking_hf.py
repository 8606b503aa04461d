"""Between our lock and those of HF's client."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import IntegrityError
from .formats.content import METADATA
from .formats.hf_lock import HfLocked, git_lfs_concat
from .formats.lock import Lock, LockedKernel, sort_key
from .formats.metadata import parse_metadata
from .formats.variant import VariantName
from .hub_place import HubPlace
from .resolution import Way
from .store import Store


def from_hf(locked: Iterable[HfLocked], store: Store, way: Way) -> Lock:
    """What HF's lock pins, to start a lock of ours from: commits without content yet.

    The old format states no versions; they are read from the metadata of its commits. Its hashes
    are held against what the Hub lists there.

    Raises:
        IntegrityError: the Hub lists something else at a commit than the old lock pins.
        RepositoryNotFound, VersionNotFound, NotCached, HubError: as the Hub answers.
    """
    kernels: list[LockedKernel] = []
    for pinned in locked:
        version = pinned.version
        if version is None and pinned.revision is None:
            place = HubPlace(store.repository(pinned.repo_id), pinned.commit, way)
            _check_hashes(pinned, place)
            version = _version(place)
        kernels.append(
            LockedKernel(
                repo_id=pinned.repo_id,
                requirement=None,
                version=version,
                commit=pinned.commit,
                variants={},
            )
        )
    return Lock(kernels=tuple(sorted(kernels, key=sort_key)))


def to_hf(lock: Lock, store: Store, way: Way, *, old: bool = False) -> tuple[HfLocked, ...]:
    """The entries of HF's lock for ours.

    Args:
        old: whether they are for the format up to 0.16, which holds a hash of each variant.

    Raises:
        NotCached, HubError: the files of a commit have to be listed for the old format.
    """
    return tuple(
        HfLocked(
            repo_id=kernel.repo_id,
            version=kernel.version,
            revision=_revision(kernel),
            commit=kernel.commit,
            hashes=_hashes(kernel, store, way) if old else {},
        )
        for kernel in lock.kernels
    )


def _revision(kernel: LockedKernel) -> str | None:
    if kernel.version is not None:
        return None
    stated = kernel.requirement.revision if kernel.requirement else None
    return stated or kernel.commit


def _hashes(kernel: LockedKernel, store: Store, way: Way) -> dict[str, str]:
    place = HubPlace(store.repository(kernel.repo_id), kernel.commit, way)
    return {name: _hash(place, name) for name in kernel.variants if name.startswith("torch")}


def _hash(place: HubPlace, variant: str) -> str:
    return git_lfs_concat({path: file.id.value for path, file in place.files(variant).items()})


def _check_hashes(pinned: HfLocked, place: HubPlace) -> None:
    published = place.variants()
    faults = {
        variant: "is not what the lock was made from"
        for variant, expected in pinned.hashes.items()
        if variant not in published or _hash(place, variant) != expected
    }
    if faults:
        raise IntegrityError(
            f"{pinned.repo_id}@{pinned.commit[:12]} does not hold what HF's lock pins",
            faults=faults,
        )


def _version(place: HubPlace) -> int | None:
    name = next((v for v in place.variants() if VariantName.parse(v) is not None), None)
    if name is None:
        return None
    return parse_metadata(place.metadata_bytes(name), f"{name}/{METADATA}").version
