"""How good a tree is, as the command lines say it."""

from __future__ import annotations

import math
from typing import Any

from kernel_builder.tuning.build import Report
from kernel_builder.tuning.evaluate import slowdown_text
from kernel_builder.tuning.evidence import summary
from kernel_builder.tuning.tune import Built


def facts(item: Built) -> dict[str, Any]:
    """One built tree as JSON."""
    return {**report_facts(item.report), "files": [str(file) for file in item.files]}


def report_facts(report: Report) -> dict[str, Any]:
    """How good one tree is, as JSON."""
    return {
        "event": "tree",
        "kernel": report.tree.kernel,
        "device": report.tree.device.name,
        "configs": len(report.tree.configs),
        "fitted": summary(report.fitted),
        "held_out": summary(report.held_out),
        "leave_one_shape_out": summary(report.left_out),
        "single_best": summary(report.single),
        "misses": [
            {"where": m.where, "text": m.text, "recorded": m in report.recorded}
            for m in report.misses
        ],
    }


def text(item: Built) -> str:
    """One built tree for people."""
    lines = [report_text(item.report), *(f"  wrote {file}" for file in item.files)]
    if not item.files:
        lines.append("  not written; see --max-slowdown, --max-configs and --allow-misses")
    return "\n".join(lines)


def report_text(report: Report) -> str:
    """How good one tree is, for people."""
    lines = [
        f"{report.tree.kernel} on {report.tree.device.name}: {len(report.tree.configs)} configs"
    ]
    for name, scores in (
        ("fitted", report.fitted),
        ("held out", report.held_out),
        ("left out in turn", report.left_out),
        ("best single config", report.single),
    ):
        if scores.scores:
            mean, worst = slowdown_text(scores.geomean), slowdown_text(scores.worst)
            lines.append(
                f"  {name:20} {len(scores.scores):4} points  geomean {mean}  worst {worst}"
            )
    lines += [f"  MISSED {miss.where}: {miss.text}" for miss in report.new_misses]
    if report.recorded:
        most = max(report.recorded, key=lambda miss: miss.slowdown or math.inf)
        lines.append(
            f"  {len(report.recorded)} misses that its evidence tells of already, the worst "
            f"{most.where}: {most.text}"
        )
    return "\n".join(lines)
