"""One frozen `Settings`: the only reader of environment variables in the package.

Values are read when asked for, not at import, so a variable that a program sets before its first
`get_kernel` counts. `scope` replaces values for a block of code (tests, embedded use) without
touching the environment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from .errors import SettingsError

DEFAULT_ENDPOINT = "https://huggingface.co"
MACHINE_POLICY = Path(
    r"C:\ProgramData\kernelhub\policy.toml" if os.name == "nt" else "/etc/kernelhub/policy.toml"
)
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
_FALSE = frozenset({"", "0", "OFF", "NO", "FALSE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that the environment may say.

    Attributes:
        cache: folder of the local store. `KERNELHUB_CACHE`, else `HF_HOME`/kernelhub. One that is
            relative stays where it was when the process read it first, as do `record` and
            `overlays`.
        endpoint: base URL of the Hub, no trailing slash. `HF_ENDPOINT`.
        offline: make no network request. `KERNELHUB_OFFLINE` or `HF_HUB_OFFLINE`.
        local_kernels: repository id to folder, used instead of the Hub. `LOCAL_KERNELS`.
        trust: repository ids or publishers ("org/k", "org") that need no `trust_remote_code`.
            `KERNELHUB_TRUST`, comma-separated.
        interpret: run Triton kernels in Triton's interpreter: True always, False never, None where
            there is no GPU. `KERNELHUB_INTERPRET`, else `TRITON_INTERPRET`.
        record: file to which launches of tunables are recorded; None records nothing.
            `KERNELHUB_RECORD`.
        overlays: folder of the user's own trees. `KERNELHUB_OVERLAYS`, else `cache`/overlays.
        strict: raise where a damaged or foreign tree would only be logged. `KERNELHUB_STRICT`.
        timeout: seconds that one `get_kernel` may spend on the network. `KERNELHUB_TIMEOUT`.
        publish_timeout: seconds that one `kernel-builder publish` may take, with its waits for a
            busy Hub. `KERNELHUB_PUBLISH_TIMEOUT`.
        project: folder whose requirements and lock count; None looks from the working directory
            upward. `KERNELHUB_PROJECT`.
        lock: lock file to use in place of the one that is found. `KERNELHUB_LOCK`.
        use_lock: whether locks are looked at. `KERNELHUB_LOCK=0` is no.
        user_policy: the user's trust policy; None for none. `KERNELHUB_CONFIG`/policy.toml, where
            `KERNELHUB_CONFIG` is `XDG_CONFIG_HOME`/kernelhub (on Windows `APPDATA`/kernelhub) by
            default.
        machine_policy: the machine's trust policy; None for none. No variable changes it, since it
            may be binding: /etc/kernelhub/policy.toml, on Windows
            C:\\ProgramData\\kernelhub\\policy.toml.
    """

    cache: Path
    endpoint: str = DEFAULT_ENDPOINT
    offline: bool = False
    local_kernels: Mapping[str, Path] = field(default_factory=dict)
    trust: tuple[str, ...] = ()
    interpret: bool | None = None
    record: Path | None = None
    overlays: Path
    strict: bool = False
    timeout: float = 600.0
    publish_timeout: float = 3600.0
    project: Path | None = None
    lock: Path | None = None
    use_lock: bool = True
    user_policy: Path | None = None
    machine_policy: Path | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read the variables named above.

        Raises:
            SettingsError: a variable has a value that cannot be used; the text names it.
        """
        env = os.environ if environ is None else environ
        home = Path(
            env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
        )
        cache = _anchored(Path(env.get("KERNELHUB_CACHE") or home / "kernelhub").expanduser())
        record = env.get("KERNELHUB_RECORD")
        project = env.get("KERNELHUB_PROJECT")
        lock = env.get("KERNELHUB_LOCK", "")
        return cls(
            cache=cache,
            endpoint=_url(env, "HF_ENDPOINT", DEFAULT_ENDPOINT).rstrip("/"),
            offline=_flag(env, "KERNELHUB_OFFLINE") or _flag(env, "HF_HUB_OFFLINE") or False,
            local_kernels=parse_local_kernels(env.get("LOCAL_KERNELS", "")),
            trust=tuple(t.strip() for t in env.get("KERNELHUB_TRUST", "").split(",") if t.strip()),
            interpret=_first(_flag(env, "KERNELHUB_INTERPRET"), _flag(env, "TRITON_INTERPRET")),
            record=_anchored(Path(record).expanduser()) if record else None,
            overlays=_anchored(
                Path(env.get("KERNELHUB_OVERLAYS") or cache / "overlays").expanduser()
            ),
            strict=_flag(env, "KERNELHUB_STRICT") or False,
            timeout=_seconds(env, "KERNELHUB_TIMEOUT", 600.0),
            publish_timeout=_seconds(env, "KERNELHUB_PUBLISH_TIMEOUT", 3600.0),
            project=Path(project).expanduser() if project else None,
            lock=Path(lock).expanduser() if lock.upper() not in _FALSE else None,
            use_lock=not lock or lock.upper() not in _FALSE,
            user_policy=_config(env) / "policy.toml",
            machine_policy=MACHINE_POLICY,
        )


_override: ContextVar[Settings | None] = ContextVar("kernelhub_settings", default=None)


def current() -> Settings:
    """The settings in force: those of the innermost `scope`, else of the environment now."""
    return _override.get() or Settings.from_environment()


@contextmanager
def scope(**changes: object) -> Iterator[Settings]:
    """Replace settings for the block: `with scope(offline=True): ...`."""
    changed = replace(current(), **changes)  # type: ignore[arg-type]
    token = _override.set(changed)
    try:
        yield changed
    finally:
        _override.reset(token)


def parse_local_kernels(text: str) -> dict[str, Path]:
    """Parse `org/a=path:org/b=path`, the form that HF's client reads.

    A separator is a `:` (or `;`) that is followed by `<org>/<name>=`, so a Windows drive such as
    `C:\\kernels` stays whole.

    Raises:
        SettingsError: an entry has no `=`, an empty path, or no `org/name` before it.
    """
    entries: list[str] = []
    for part in text.replace(";", ":").split(":"):
        if ("=" in part and "/" in part.split("=", 1)[0]) or not entries:
            entries.append(part)
        else:
            entries[-1] += f":{part}"
    kernels: dict[str, Path] = {}
    for entry in (e for e in entries if e.strip()):
        repo_id, equals, path = (piece.strip() for piece in entry.partition("="))
        if not equals or not path or repo_id.count("/") != 1:
            raise SettingsError(
                f"LOCAL_KERNELS: cannot read {entry!r}",
                hint="write org/name=folder, several separated by ':' (or ';' on Windows)",
            )
        kernels[repo_id] = Path(path).expanduser()
    return kernels


@functools.cache  # forgetting one would move it
def _anchored(path: Path) -> Path:
    """A path of the environment as this process read it first, whichever folder it goes to later.

    Raises:
        SettingsError: it is relative, and the working directory is gone.
    """
    try:
        return path.absolute()
    except OSError as error:
        raise SettingsError(
            f"{path} is relative to a working directory that is gone", hint="give a whole path"
        ) from error


def _config(env: Mapping[str, str]) -> Path:
    if given := env.get("KERNELHUB_CONFIG"):
        return Path(given).expanduser()
    default = env.get("APPDATA") if os.name == "nt" else env.get("XDG_CONFIG_HOME")
    return Path(default or "~/.config").expanduser() / "kernelhub"


def _flag(env: Mapping[str, str], name: str) -> bool | None:
    value = env.get(name)
    if value is None:
        return None
    if value.upper() in _TRUE:
        return True
    if value.upper() in _FALSE:
        return False
    raise SettingsError(f"{name}={value!r} is neither true nor false", hint="use 1 or 0")


def _first(*values: bool | None) -> bool | None:
    return next((value for value in values if value is not None), None)


def _url(env: Mapping[str, str], name: str, default: str) -> str:
    value = env.get(name) or default
    try:
        parts = urlsplit(value)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise SettingsError(
            f"{name}={value!r} is no URL of a Hub", hint=f"write it out, such as {default}"
        )
    return value


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    value = env.get(name)
    if not value:
        return default
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise SettingsError(f"{name}={value!r} is not a positive number of seconds")
    return seconds
