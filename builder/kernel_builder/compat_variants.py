"""What a build no longer runs on: variants that are gone, and requirements that became stricter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from kernelhub.formats.metadata import Metadata

from .api import Break


def variant_breaks(old: Iterable[str], new: Iterable[str]) -> Iterator[Break]:
    """A break for each published variant that the build does not have."""
    for name in sorted(set(old) - set(new)):
        yield Break(name=name, what="this variant is no longer built")


def requirement_breaks(old: Metadata, new: Metadata) -> Iterator[Break]:
    """A break for each tool of which versions are no longer admitted, and each new dependency."""
    before, after = old.extension, new.extension
    was = {} if before is None else before.requires
    for tool, specifier in sorted(({} if after is None else after.requires).items()):
        earlier = str(was.get(tool, ""))
        if _is_stricter(SpecifierSet(earlier), SpecifierSet(str(specifier))):
            what = f"now requires {specifier} (before: {earlier or 'any version'})"
            yield Break(name=tool, what=what)
    known = set() if before is None else {str(item) for item in before.dependencies}
    for dependency in () if after is None else after.dependencies:
        if str(dependency) not in known:
            yield Break(name=str(dependency), what="is a dependency that was not there before")


def _is_stricter(old: SpecifierSet, new: SpecifierSet) -> bool:
    """Whether a version is admitted by the old and not by the new.

    Specifiers are bounds, so it is enough to ask at each bound, just above and just below it.
    """
    probes = {Version("0"), Version("99999")}
    for specifier in (*old, *new):
        release = Version(specifier.version.removesuffix(".*")).release
        for last in (release[-1] - 1, release[-1], release[-1] + 1):
            if last >= 0:
                part = ".".join(map(str, (*release[:-1], last)))
                probes |= {Version(part), Version(f"{part}.1"), Version(f"{part}.99999")}
    return any(old.contains(probe) and not new.contains(probe) for probe in probes)
