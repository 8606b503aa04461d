"""Many processes of one node at once, a Hub that limits its clients, and what a warm load costs.

    python -m benchmarks.fleet [--json] [--processes 64] [--rounds 9] [--latency 0.1]

The processes are children of one that has imported the client, as the ranks of a launcher have
their framework imported; all of them exist before the first one asks. Each answer of the Hub takes
`--latency` seconds more, as on a network. The kernel is plain Python.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_DISABLE_XET"] = "1"  # the embedded Hub takes large files by LFS

from benchmarks._report import Figure, Report, arguments, emit, environment
from benchmarks.faultlab.lab import LARGE, Lab, laboratory
from kernelhub.serve.faults import Fault

OURS, PEER = "kernelhub", "kernels"
RATE = 20
LIMIT = 120.0  # seconds after which a process has failed; the peer may go on for ever
PATIENCE = {"KERNELHUB_TIMEOUT": "110"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Processes that were started together: requests, wall time, and how many failed.

    `busy` is the CPU time, in seconds, of each that did not.
    """

    requests: int
    seconds: float
    failed: int
    busy: tuple[float, ...]
    errors: tuple[str, ...] = ()


def start(lab: Lab, processes: int, faults: Sequence[Fault], *, apart: bool = False) -> Start:
    """Load in so many processes on an empty cache; `apart` gives each a cache of its own."""
    lab.fresh("get")
    lab.hub.clear()
    lab.hub.faults.replace(faults)
    begin = time.monotonic() + 1.0 + 0.03 * processes
    orders = [
        {
            "operation": "get",
            "start_at": begin,
            "limit": LIMIT,
            "environment": PATIENCE
            | ({"KERNELHUB_CACHE": str(lab.home / f"node-{n}")} if apart else {}),
        }
        for n in range(processes)
    ]
    outcomes = lab.together(orders)
    lab.hub.faults.replace([])
    asked = len([record for record in lab.hub.requests if record.status != 429])
    failed = [outcome for outcome in outcomes if not outcome["ok"]]
    ends = [outcome["ended"] for outcome in outcomes if outcome["ok"]]
    return Start(
        requests=asked,
        seconds=max(ends, default=begin) - begin,
        failed=len(failed),
        busy=tuple(outcome["busy"] for outcome in outcomes if outcome["ok"]),
        errors=tuple(sorted({str(outcome.get("error"))[:120] for outcome in failed})),
    )


def together(
    labs: Mapping[str, Lab], options: argparse.Namespace, raw: dict[str, Any]
) -> list[Figure]:
    """A cold start of a node, against one process."""
    slow = Fault(effect="stall", after=0, seconds=options.latency)
    many, one = options.processes, 1
    found: dict[str, dict[int, list[Start]]] = {}
    for client, lab in labs.items():
        found[client] = {n: [] for n in (one, many)}
        for _ in range(options.starts):
            for count in (one, many):
                found[client][count].append(start(lab, count, [slow]))
        raw[f"{client}-cold"] = [
            {
                "processes": n,
                "requests": s.requests,
                "seconds": s.seconds,
                "failed": s.failed,
                "busy": [round(seconds, 4) for seconds in s.busy],
            }
            for n, starts in found[client].items()
            for s in starts
        ]
    ours, peer = found[OURS], found.get(PEER)
    ratio = {c: _median(f[many]) / _median(f[one]) for c, f in found.items()}
    busy = {c: statistics.median(sum(s.busy) for s in f[many]) for c, f in found.items()}
    cpus = os.cpu_count() or 1
    note = f"{many} processes, each answer {options.latency * 1000:g} ms late"
    return [
        Figure(
            name="cold-requests",
            value=max(s.requests for s in ours[many]),
            unit="requests",
            target=max(s.requests for s in ours[one]),
            peer=max(s.requests for s in peer[many]) if peer else None,
            note=f"{note}; the target is what one process asks",
        ),
        Figure(
            name="cold-seconds-one",
            value=_median(ours[one]),
            unit="s",
            peer=_median(peer[one]) if peer else None,
            note="one process",
        ),
        Figure(
            name="cold-seconds-ratio",
            value=ratio[OURS],
            unit="x",
            target=2.0,
            peer=ratio.get(PEER),
            note=f"{note}, over one; median of {options.starts}",
        ),
        Figure(
            name="cold-cpu-per-process",
            value=busy[OURS] / many * 1000,
            unit="ms",
            peer=busy[PEER] / many * 1000 if peer else None,
            note=f"mean of {many}; on {cpus} cores the wall time is at least"
            f" {busy[OURS] / cpus:.2f} s, {busy[OURS] / cpus / _median(ours[one]):.2f}x of one",
        ),
        Figure(
            name="cold-failed",
            value=sum(s.failed for s in ours[many]),
            unit="processes",
            target=0,
            peer=sum(s.failed for s in peer[many]) if peer else None,
            note=note,
        ),
    ]


def limited(
    labs: Mapping[str, Lab], options: argparse.Namespace, raw: dict[str, Any]
) -> list[Figure]:
    """A Hub that answers 429 to what goes beyond its rate."""
    limit = Fault(effect="status", status=429, headers={"Retry-After": "1"}, above_rate=RATE)
    node = {client: start(lab, options.processes, [limit]) for client, lab in labs.items()}
    nodes = start(labs[OURS], options.processes, [limit], apart=True)
    raw["limited"] = {
        "node": {c: [s.requests, s.seconds, s.failed, *s.errors] for c, s in node.items()},
        "nodes": [nodes.requests, nodes.seconds, nodes.failed, *nodes.errors],
    }
    peer = node.get(PEER)
    return [
        Figure(
            name="limited-failed",
            value=node[OURS].failed,
            unit="processes",
            target=0,
            peer=peer.failed if peer else None,
            note=f"{options.processes} processes of one node, {RATE} requests a second",
        ),
        Figure(
            name="limited-nodes-failed",
            value=nodes.failed,
            unit="processes",
            target=0,
            note=f"{options.processes} nodes: a cache each; took {nodes.seconds:.1f} s for"
            f" {nodes.requests} requests",
        ),
    ]


def warm(lab: Lab, options: argparse.Namespace, raw: dict[str, Any]) -> list[Figure]:
    """What a load costs when everything is there."""
    lab.clean("lock")
    lab.fresh("sync")
    _done(lab.run("sync"))
    lab.hub.clear()
    _done(lab.run("get"))
    locked = len(lab.hub.requests)
    lab.fresh("get")
    _done(lab.run("get"))
    ways = {
        "online": {},
        "offline": {"KERNELHUB_OFFLINE": "1"},
    }
    took: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, variables in ways.items():
            took[way].append(_done(lab.run("get", environment=variables))["took"])
    lab.repo = LARGE
    _done(lab.run("get", data=None))
    checks = [_done(lab.run("verify", data=None))["said"] for _ in range(options.rounds)]
    raw["warm"] = took | {"verify": checks}
    online, offline = (statistics.median(took[way]) * 1000 for way in ways)
    first, busy, again = (statistics.median(c[n] for c in checks) * 1000 for n in (0, 1, 2))
    note = f"median of {options.rounds}"
    return [
        Figure(name="locked-requests", value=locked, unit="requests", target=0,
               note="get_kernel of a locked kernel that is on the disk"),
        Figure(name="verify-first", value=first, unit="ms", target=10,
               note=f"5 MB in 20 files, first time in a process, {busy:.3g} ms of it CPU; {note}"),
        Figure(name="verify-again", value=again, unit="ms", target=1,
               note=f"the same, facts of the files unchanged; {note}"),
        Figure(name="warm-online", value=online, unit="ms", note=f"get_kernel, by version; {note}"),
        Figure(name="warm-offline-over-online", value=offline - online, unit="ms", target=50,
               note=f"the same offline takes {offline:.3g} ms; {note}"),
    ]  # fmt: skip


def _done(outcome: dict[str, Any]) -> dict[str, Any]:
    if not outcome["ok"]:
        raise SystemExit(f"a load failed: {outcome}")
    return outcome


def _median(starts: Sequence[Start]) -> float:
    return statistics.median(s.seconds for s in starts)


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--raw", type=Path, help="write the samples to this file")
    options = parser.parse_args()
    clients = (OURS,) if options.no_peer else (OURS, PEER)
    raw: dict[str, Any] = {"load": os.getloadavg(), "cpus": os.cpu_count()}
    with (
        tempfile.TemporaryDirectory(prefix="kernelhub-fleet-") as folder,
        laboratory(Path(folder), clients) as labs,
    ):
        figures = [
            *warm(labs[OURS], options, raw),
            *together(labs, options, raw),
            *limited(labs, options, raw),
        ]
    if options.raw is not None:
        options.raw.parent.mkdir(parents=True, exist_ok=True)
        options.raw.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    facts = environment() | {"load": raw["load"]}
    title = "A node of many processes: kernelhub against HF's kernels"
    return emit(Report(title=title, figures=figures, environment=facts), options)


if __name__ == "__main__":
    sys.exit(main())
