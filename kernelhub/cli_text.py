"""Words that the command lines share."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def amount(count: int, unit: str = "bytes") -> str:
    """A count for people: bytes in powers of 1000, anything else as it is."""
    if unit != "bytes":
        return f"{count} {unit}".strip()
    size = float(count)
    for name in ("B", "kB", "MB", "GB"):
        if size < 1000 or name == "GB":
            break
        size /= 1000
    return f"{size:.0f} {name}" if name == "B" else f"{size:.1f} {name}"
