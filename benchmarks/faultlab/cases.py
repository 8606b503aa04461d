"""What is tried: each fault at each request, deaths at seeded points, and bytes changed on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelhub.serve.faults import Fault

OPERATIONS = ("get", "lock", "sync", "publish")
FOR_EVER = 10_000
PASSING, LASTING = "passing", "lasting"

# A comment until its first byte is flipped, as `corrupt` does: "#" becomes "v".
TRAP = b'#=open(__import__("os").environ["FAULTLAB_MARKER"],"w").write("ran")\n'
SOURCE_SIZE = 512


def source(text: bytes) -> bytes:
    """A module of `SOURCE_SIZE` bytes that runs `text`, and leaves a mark if they are wrong."""
    body = TRAP + text
    return body + b"#" * (SOURCE_SIZE - len(body) - 1) + b"\n"


WRONG = source(b"").replace(b"#=", b"v=", 1)
FILES: Mapping[str, bytes] = {
    "__init__.py": source(b"from .ops import ANSWER\n\n\ndef answer():\n    return ANSWER\n"),
    "ops.py": source(b"ANSWER = 42\n"),
    "data.bin": bytes(range(256)) * 64,
}

EFFECTS: Mapping[str, Mapping[str, object]] = {
    "401": {"effect": "status", "status": 401},
    "403": {"effect": "status", "status": 403},
    "404": {"effect": "status", "status": 404},
    "429-retry-after": {"effect": "status", "status": 429, "headers": {"Retry-After": "1"}},
    "429-ratelimit": {
        "effect": "status",
        "status": 429,
        "headers": {"RateLimit": '"api";r=0;t=1'},
    },
    "429": {"effect": "status", "status": 429},
    "500": {"effect": "status", "status": 500},
    "502": {"effect": "status", "status": 502},
    "503": {"effect": "status", "status": 503},
    "garbage": {"effect": "garbage"},
    "truncated": {"effect": "truncate", "after": 7},
    "wrong-byte": {"effect": "corrupt", "after": 0},
    "wrong-body": {"effect": "status", "status": 200, "body": WRONG},
    "stall": {"effect": "stall", "after": 1, "seconds": 60.0},
    "drip": {"effect": "drip", "piece": 256, "seconds": 0.02},
    "reset": {"effect": "reset"},
    "lost-answer": {"effect": "lost_answer"},
}
ON_DISK = ("flipped", "cut", "removed", "zeroed", "grown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to try.

    Attributes:
        kind: a request is spoiled, the client is killed, or a stored file is changed.
        operation: what the client does meanwhile.
        name: of `EFFECTS` or `ON_DISK`; for a death, what counts: "event" or "time".
        at: the request, counted from 1; or when to die, as a share of the whole operation; or which
            of the stored files, as a share of their number.
        lasting: the requests after that one are spoiled too.
    """

    kind: Literal["request", "death", "disk"]
    operation: str
    name: str
    at: float
    lasting: bool = False

    def __str__(self) -> str:
        tail = f"-{LASTING}" if self.lasting else ""
        return f"{self.operation}-{self.kind}-{self.name}-{self.at:g}{tail}"

    def fault(self) -> Fault:
        """The rule for the Hub."""
        first = int(self.at)
        nth = range(first, FOR_EVER) if self.lasting else (first,)
        return Fault(nth=nth, **EFFECTS[self.name])  # type: ignore[arg-type]


def requests(operation: str, count: int) -> Iterator[Case]:
    """Every fault at each of `count` requests, for a moment and for good."""
    for name in EFFECTS:
        for at in range(1, count + 1):
            for lasting in (False, True):
                yield Case(kind="request", operation=operation, name=name, at=at, lasting=lasting)


def deaths(operation: str, count: int, seed: int) -> Iterator[Case]:
    """Deaths at seeded points."""
    chance = random.Random(f"{seed} {operation}")
    for number in range(count):
        name = "time" if number % 4 == 3 else "event"
        yield Case(kind="death", operation=operation, name=name, at=round(chance.random(), 4))


def on_disk(files: int) -> Iterator[Case]:
    """Every change of each of so many stored files."""
    for name in ON_DISK:
        for index in range(files):
            yield Case(kind="disk", operation="get", name=name, at=index)


def sample(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """So many of them, the same for the same seed; all of them if there are fewer."""
    if count >= len(cases):
        return list(cases)
    return random.Random(seed).sample(list(cases), count)
