"""Every error that kernelhub and kernel_builder raise on purpose.

The tree is split by who has to act:

    KernelHubError
    ├── InputError                 the caller or author gave something that cannot be used
    │   ├── FormatError            a file is malformed: carries *every* fault of that file
    │   ├── RequirementError       a kernel requirement such as "org/k>=1,<3" does not parse
    │   ├── ConflictError          requirements of kernels contradict each other, or go in a circle
    │   ├── LockError              the lock does not hold what is asked for
    │   └── SettingsError          an environment variable or setting has an unusable value
    ├── NotFoundError              what was asked for does not exist where it was looked for
    │   ├── RepositoryNotFound     no such repository, or it is private to somebody else
    │   ├── VersionNotFound        the repository has no such version or revision
    │   ├── NoCompatibleVariant    published, but nothing in it runs on this machine
    │   └── NotCached              offline, and this machine holds no complete copy
    ├── TrustError                 policy does not allow code of this publisher to run
    ├── IntegrityError             bytes are not those that were published
    ├── HubError                   the Hub, or the way to it, failed
    │   ├── HubAuthError           401 or 403: a token is missing or not sufficient
    │   ├── HubRateLimited         429, still after the waits that the Hub asked for
    │   └── HubUnavailable         no answer, 5xx, or an answer that is not the protocol
    ├── StoreError                 the local disk failed: full, read-only, not writable
    ├── LoadError                  the kernel's own code failed to import
    │   └── DependencyError        it needs a package that is missing or of another version
    ├── DispatchError              no configuration of a tunable can be launched here
    ├── TuningError                tuning could not be done, or its goal was not met
    └── MissingExtra               an optional part of this distribution is not installed

Errors carry their facts as attributes; the text is made from them in `__str__`, and `hint` says
what to do about it. Errors of other libraries are translated once, at the rim, with `from`.
This module imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


class KernelHubError(Exception):
    """Base of all errors here. `message` says what happened, `hint` the remedy."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


@contextmanager
def about(subject: str) -> Iterator[None]:
    """Let messages of errors of the block begin with what they are about, "org/k v2 (1f0c…)"."""
    try:
        yield
    except KernelHubError as error:
        if not error.message.startswith(subject.partition(" ")[0]):
            error.message = f"{subject}: {error.message}"
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault of one file: where it is, what is wrong there, and what to do.

    `path` is relative to the project or kernel and uses `/`; `at` is the dotted path of a value
    inside it (`general.version`); lines and columns count from 1.
    """

    message: str
    path: str | None = None
    at: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None
    code: str | None = None  # a stable short name such as "absolute-import", for --json and tests

    def __str__(self) -> str:
        position = ":".join(str(n) for n in (self.path, self.line, self.column) if n is not None)
        where = ": ".join(part for part in (position, self.at) if part)
        text = f"{where}: {self.message}" if where else self.message
        return text if self.hint is None else f"{text} ({self.hint})"


class InputError(KernelHubError):
    """Something that the caller or the author gave cannot be used."""


class FormatError(InputError):
    """A file (or several) is malformed. Carries all of its faults, never only the first."""

    def __init__(
        self, subject: str, problems: Sequence[Problem], *, hint: str | None = None
    ) -> None:
        super().__init__(
            f"{subject}: {len(problems)} problem{'s' * (len(problems) != 1)}", hint=hint
        )
        self.subject = subject
        self.problems = tuple(problems)

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {problem}" for problem in self.problems)]
        return "\n".join([*lines, f"  hint: {self.hint}"] if self.hint else lines)


class RequirementError(InputError):
    """A kernel requirement does not parse. `column` counts from 1."""

    def __init__(self, text: str, reason: str, *, column: int = 1, hint: str | None = None) -> None:
        super().__init__(
            f"invalid kernel requirement {text!r}, column {column}: {reason}", hint=hint
        )
        self.text = text
        self.reason = reason
        self.column = column


class ConflictError(InputError):
    """Requirements contradict each other, or kernels need each other in a circle.

    `chains` says for each requirement who asks for it, from the project down.
    """

    def __init__(self, message: str, *, chains: Sequence[str] = (), hint: str | None = None):
        super().__init__(message, hint=hint)
        self.chains = tuple(chains)

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {chain}" for chain in self.chains)]
        return "\n".join([*lines, f"  hint: {self.hint}"] if self.hint else lines)


class LockError(InputError):
    """The lock does not hold what is asked for, or does not match the requirements."""


class SettingsError(InputError):
    """An environment variable or setting has a value that cannot be used."""


class NotFoundError(KernelHubError):
    """What was asked for does not exist where it was looked for."""


class RepositoryNotFound(NotFoundError):
    """There is no such repository, or it is private and the token does not reach it."""


class VersionNotFound(NotFoundError):
    """The repository exists, the version or revision does not. `available` lists what does."""

    def __init__(
        self, message: str, *, available: Sequence[int] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.available = tuple(available)


class NoCompatibleVariant(NotFoundError):
    """Nothing that is published there runs on this machine. `reasons` says why, per variant."""

    def __init__(
        self, message: str, *, reasons: Mapping[str, str], hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.reasons = dict(reasons)

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {name}: {why}" for name, why in self.reasons.items())]
        return "\n".join([*lines, f"  hint: {self.hint}"] if self.hint else lines)


class NotCached(NotFoundError):
    """The network may not or cannot be used, and this machine holds no complete copy."""


class TrustError(KernelHubError):
    """Policy does not allow code of this publisher to run here."""


class IntegrityError(KernelHubError):
    """Bytes differ from those that were published. `faults` names each file and its fault."""

    def __init__(
        self, message: str, *, faults: Mapping[str, str] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.faults = dict(faults or {})

    def __str__(self) -> str:
        lines = [self.message, *(f"  - {name}: {why}" for name, why in self.faults.items())]
        return "\n".join([*lines, f"  hint: {self.hint}"] if self.hint else lines)


class HubError(KernelHubError):
    """The Hub, or the way to it, failed. `status` is the HTTP status where there was one."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        url: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.url = url


class HubAuthError(HubError):
    """401 or 403: a token is missing, expired, or does not reach this."""


class HubRateLimited(HubError):
    """429, still after the waits that the Hub asked for."""


class HubUnavailable(HubError):
    """No answer, a 5xx, or an answer that is not the Hub's protocol."""


class StoreError(KernelHubError):
    """The local disk failed: full, read-only, or not writable by this user."""


class LoadError(KernelHubError):
    """The kernel's own code failed while it was imported; the cause is chained."""


class DependencyError(LoadError):
    """The kernel needs a package that is missing or of another version."""


class DispatchError(KernelHubError):
    """No configuration of a tunable can be launched on this device."""


class TuningError(KernelHubError):
    """Tuning could not be done, or its goal was not met."""


class MissingExtra(KernelHubError):
    """An optional part of the distribution is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs packages that are not installed",
            hint=f'pip install "kernelhub[{extra}]"',
        )
        self.extra = extra
