"""Loading, locking, syncing and publishing while things go wrong: tried, survived, refused, lost.

    python -m benchmarks.faults [--json] [--runs 300] [--seed 1] [--peer-runs 120]

Each case starts cold in a process of its own and is followed by the same thing undisturbed. A case
is *survived* if it gave the right result, *refused* if it ended with an error of the client's own
and the next try works, and *lost* if wrong bytes ran or were handed out, the process went on past
its limit, ended with any other error, left something broken behind, or broke a process beside it.
The peer, HF's `kernels`, is granted every exception as a refusal. It gets the same cases of
`get_kernel`: each fault at each of its own requests, the same deaths, and changes of the same files
of a kernel in its cache.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

os.environ["HF_HUB_DISABLE_XET"] = "1"  # the embedded Hub takes large files by LFS

from benchmarks._report import Figure, Report, arguments, emit
from benchmarks.faultlab import cases
from benchmarks.faultlab.cases import Case
from benchmarks.faultlab.lab import Clean, Lab, Result, laboratory

OURS, PEER = "kernelhub", "kernels"
VERDICTS = ("survived", "refused", "lost")
GROUPS = ("request", "death", "disk")


def run_all(lab: Lab, operations: Sequence[str], runs: int, seed: int) -> list[Result]:
    """So many cases of each group, the same for the same seed."""
    clean = {operation: lab.clean(operation) for operation in operations}
    results: list[Result] = []
    for case in _chosen(lab, clean, runs, seed):
        result = lab.try_case(case, clean[case.operation])
        results.append(result)
        print(f"{len(results):4} {lab.client} {result.verdict:8} {case}", file=sys.stderr)
    return results


def _chosen(lab: Lab, clean: dict[str, Clean], runs: int, seed: int) -> list[Case]:
    """Six tenths spoiled requests, three tenths deaths, and one of changed files."""
    requests = [c for op, facts in clean.items() for c in cases.requests(op, facts.requests)]
    deaths = [c for op in clean for c in cases.deaths(op, runs * 3 // 10 // len(clean), seed)]
    stored = lab.stored()
    kernel = [n for n, path in enumerate(stored) if lab.client == OURS or _is_kernels(path)]
    disk = [c for c in cases.on_disk(len(stored)) if c.at in kernel]
    return [
        *cases.sample(requests, runs * 6 // 10, seed),
        *deaths,
        *cases.sample(disk, runs // 10, seed),
    ]


def _is_kernels(path: Path) -> bool:
    return path.read_bytes() in cases.FILES.values()


def figures(ours: Sequence[Result], peer: Sequence[Result]) -> list[Figure]:
    """Per group: tried and how it went; lost has to be nothing."""
    found: list[Figure] = []
    for group in GROUPS:
        mine, theirs = _counts(ours, group), _counts(peer, group)
        tried = sum(theirs.values())
        note = f"of {sum(mine.values())} tried" + (f", peer of {tried}" if tried else "")
        found += [
            Figure(
                name=f"{group}-{verdict}",
                value=mine[verdict],
                unit="cases",
                target=0 if verdict == "lost" else None,
                peer=theirs[verdict] if tried else None,
                note=note,
            )
            for verdict in VERDICTS
        ]
    return found


def _counts(results: Sequence[Result], group: str) -> Counter[str]:
    return Counter(result.verdict for result in results if result.case.kind == group)


def _write_cases(path: Path, results: dict[str, list[Result]]) -> None:
    rows = [
        {
            "client": client,
            "case": str(result.case),
            "verdict": result.verdict,
            "why": result.why[:300],
            "seconds": round(result.seconds, 2),
            "injected": result.injected,
        }
        for client, found in results.items()
        for result in found
    ]
    lines = ",\n ".join(json.dumps(row) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[{lines}]\n", encoding="utf-8")


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--peer-runs", type=int, default=120, help="0 leaves the peer out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=Path, help="write what became of each case to this file")
    options = parser.parse_args()
    clients = (OURS, PEER) if options.peer_runs else (OURS,)
    results: dict[str, list[Result]] = {PEER: []}
    with (
        tempfile.TemporaryDirectory(prefix="kernelhub-faults-") as folder,
        laboratory(Path(folder), clients) as labs,
    ):
        results[OURS] = run_all(labs[OURS], cases.OPERATIONS, options.runs, options.seed)
        if options.peer_runs:
            results[PEER] = run_all(labs[PEER], ("get",), options.peer_runs, options.seed)
    if options.cases is not None:
        _write_cases(options.cases, results)
    for client, found in results.items():
        for result in found:
            if result.verdict == "lost":
                print(f"lost by {client}: {result.case}: {result.why}", file=sys.stderr)
    title = f"Faults: kernelhub against HF's kernels, seed {options.seed}"
    return emit(Report(title=title, figures=figures(results[OURS], results[PEER])), options)


if __name__ == "__main__":
    sys.exit(main())
