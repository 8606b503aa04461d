"""The process that loads: imports a client once, then forks a child for each operation.

    python -m benchmarks.faultlab.client CLIENT

Reads one JSON list of orders a line, runs them at the same time, and answers one JSON list of
outcomes. A child may be told to kill itself at the n-th thing that it does to the outside (an audit
event: a file opened, renamed or removed, a connection made, code run).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Order = dict[str, Any]
Outcome = dict[str, Any]

EVENTS = frozenset(
    {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree",
     "socket.connect", "compile", "exec", "fcntl.flock", "fcntl.lockf"}
)  # fmt: skip
WAIT_AT_MOST = 0.2


class WrongResultError(Exception):
    """A load gave something else than what was published."""


def main() -> None:
    kind = sys.argv[1]
    operations = {"kernelhub": _ours, "kernels": _peer}[kind]()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(_together(json.loads(line), operations)), flush=True)


def _together(orders: list[Order], operations: dict[str, Callable[[Order], Any]]) -> list[Outcome]:
    """Fork a child for each order; the outcome of one that was killed is its signal."""
    began = time.monotonic()
    children = [(*_start(order, operations), order) for order in orders]
    outcomes: dict[int, Outcome] = {}
    while len(outcomes) < len(children):
        waited = time.monotonic() - began
        for pid, reading, order in children:
            if pid in outcomes:
                continue
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                with os.fdopen(reading, "rb") as pipe:
                    said = pipe.read()
                outcomes[pid] = {**_outcome(said, status), "seconds": waited}
            elif waited > order.get("die_after", order["limit"]):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return [outcomes[pid] for pid, _, _ in children]


def _outcome(said: bytes, status: int) -> Outcome:
    if os.WIFSIGNALED(status):
        return {"ok": False, "signal": os.WTERMSIG(status)}
    if not said:
        return {"ok": False, "clean": False, "error": f"ended with {status} and said nothing"}
    return dict(json.loads(said))


def _start(order: Order, operations: dict[str, Callable[[Order], Any]]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    code = 1
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(_child(order, operations)).encode())
        code = 0
    finally:
        os._exit(code)


def _child(order: Order, operations: dict[str, Callable[[Order], Any]]) -> Outcome:
    os.chdir(order["folder"])
    if "user" in order:
        _become(order["user"], order, operations)
    os.environ.update(order.get("environment", {}))
    count = _count_events(order.get("die_at"))
    time.sleep(max(0.0, order.get("start_at", 0.0) - time.monotonic()))
    began, busy = time.monotonic(), time.process_time()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            said = operations[order["operation"]](order)
    except WrongResultError as error:
        return {"ok": False, "clean": False, "error": str(error), "events": count[0]}
    except Exception as error:  # noqa: BLE001 - which ones come out is what is tried
        clean = _is_clean(error)
        text = f"{type(error).__name__}: {error}"[:600]
        trace = "" if clean else traceback.format_exc()[-3000:]
        return {"ok": False, "clean": clean, "error": text, "trace": trace, "events": count[0]}
    ended = time.monotonic()
    busy = time.process_time() - busy
    facts = {"took": ended - began, "busy": busy, "ended": ended, "said": said}
    return {"ok": True, "events": count[0], **facts}


def _become(user: int, order: Order, operations: dict[str, Callable[[Order], Any]]) -> None:
    """Be another user. What that user may not import is imported before, by another kernel."""
    os.environ["KERNELHUB_CACHE"] = order["warm"]
    operations["get"]({"repo_id": order["other"]})
    os.setgroups([])
    os.setgid(order["group"])
    os.setuid(user)
    os.umask(order["umask"])


def _count_events(die_at: int | None) -> list[int]:
    count = [0]

    def hook(event: str, _: object) -> None:
        if event in EVENTS:
            count[0] += 1
            if count[0] == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    return count


def _is_clean(error: Exception) -> bool:
    """Whether a client has refused, as it says it does. The peer is granted every exception."""
    if "kernels" in sys.modules:
        return True
    from kernelhub.errors import KernelHubError

    return isinstance(error, KernelHubError)


def _check(module: Any, order: Order) -> None:
    data = (Path(module.__file__).parent / "data.bin").read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if module.answer() != 42 or found != (order.get("data") or found):
        raise WrongResultError(f"answer {module.answer()!r}, data.bin {found}")


def _ours() -> dict[str, Callable[[Order], Any]]:
    import filelock  # noqa: F401 - what the client imports when it is needed

    import kernel_builder.hub
    import kernelhub.cli_lock
    import kernelhub.loader
    import kernelhub.sources.hub
    from kernel_builder.project import Project
    from kernel_builder.publish import Options, publish
    from kernelhub.cli import group
    from kernelhub.formats.metadata import parse_metadata
    from kernelhub.settings import current
    from kernelhub.verify import METADATA, manifest_of

    def get(order: Order) -> None:
        _check(kernelhub.loader.get_kernel(order["repo_id"], version=1), order)

    def command(*arguments: str) -> Callable[[Order], Any]:
        def run(_: Order) -> None:
            with contextlib.redirect_stdout(io.StringIO()):
                group.main(args=list(arguments), standalone_mode=False)

        return run

    def send(order: Order) -> None:
        hub = kernel_builder.hub.Hub(
            current().endpoint,
            silence=2.0,
            sleep=lambda seconds: time.sleep(min(seconds, WAIT_AT_MOST)),
        )
        project = Project.open(Path(order["project"]))
        publish(project, hub, Options(repo_id=order["repo_id"]))

    def verify(order: Order) -> list[float]:
        """Seconds that checking a loaded kernel takes: wall and CPU the first time, and again."""
        module = kernelhub.loader.get_kernel(order["repo_id"], version=1)
        folder = Path(module.__file__).parent
        metadata = parse_metadata((folder / METADATA).read_bytes())
        manifest = manifest_of(metadata.digest, "")
        kernelhub.verify._verified.clear()
        seconds = []
        for _ in range(2):
            began, busy = time.perf_counter(), time.process_time()
            kernelhub.verify.verify_once(folder, manifest)
            seconds += [time.perf_counter() - began, time.process_time() - busy]
        return seconds

    return {
        "get": get,
        "verify": verify,
        "lock": command("lock"),
        "sync": command("sync", "--frozen"),
        "publish": send,
    }


def _peer() -> dict[str, Callable[[Order], Any]]:
    import kernels

    def get(order: Order) -> None:
        # The embedded Hub does not tell it what it asks to know of a publisher.
        _check(kernels.get_kernel(order["repo_id"], version=1, trust_remote_code=True), order)

    return {"get": get}


if __name__ == "__main__":
    main()
