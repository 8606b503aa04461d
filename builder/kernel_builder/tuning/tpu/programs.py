"""What the compiler has said of programs, shared by the processes of one run.

Launches of many sizes run few programs. A program is compiled again only where its VMEM, carried
over from the nearest size that was compiled, comes near the limit: there the compiler decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

_SURE = 0.04
"""Share of the limit on either side within which a carried-over size decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the compiler says of one program at one size, or what follows from its other answers.

    Attributes:
        named: bytes of VMEM that the author's `Work` names.
        needed: bytes that the compiler needs, None where it does not say.
        fits: whether it compiles.
        limit: bytes that it may take, as far as the compiler has said.
        schedule: see `schedule.Schedule.to_json`; None where it does not fit.
        reason: one of `matrix.REASONS` where it does not compile.
        error: the compiler's own words, where it names no sizes.
        carried: whether this follows from another size.
        seconds: that compiling took.
    """

    named: int
    needed: int | None
    fits: bool
    limit: int | None = None
    schedule: list[list[int]] | None = None
    reason: str = "out_of_resources"
    error: str = ""
    carried: bool = False
    seconds: float = 0.0


class Programs:
    """Answers in a folder, one file a program.

    Args:
        folder: exists; may be shared with other processes.
        limit: bytes of VMEM where the compiler has not named a limit.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    def ask(self, program: object, named: int, compile_: Callable[[], Answer]) -> Answer:
        """The answer for a program at a size.

        Args:
            program: JSON; equal for what differs in size only.
            named: bytes of VMEM that the author names at this size.
            compile_: asks the compiler.
        """
        text = json.dumps(program, sort_keys=True)
        path = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"
        with FileLock(f"{path}.lock"):
            known = _read(path)
            found = self._known(known, named)
            if found is None:
                found = compile_()
                path.write_text(json.dumps([asdict(a) for a in [*known, found]]))
        return found

    def _known(self, known: list[Answer], named: int) -> Answer | None:
        """What follows for this size, None if nothing does."""
        for answer in known:
            if answer.named == named:
                return answer
        sizes = [a for a in known if a.needed is not None]
        if not sizes:
            return None
        near = min(sizes, key=lambda a: abs(a.named - named))
        limits = [a.limit for a in known if a.limit is not None]
        limit = min(limits, default=self._limit)
        needed = (near.needed or 0) + named - near.named
        if abs(needed - limit) < _SURE * limit:
            return None
        if needed > limit:
            return Answer(named=named, needed=needed, fits=False, limit=limit, carried=True)
        fitting = [a for a in known if a.fits]
        if not fitting:
            return None
        like = min(fitting, key=lambda a: abs(a.named - named))
        return Answer(
            named=named, needed=needed, fits=True, limit=limit, schedule=like.schedule, carried=True
        )


def _read(path: Path) -> list[Answer]:
    if not path.is_file():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return [Answer(**row) for row in rows]
