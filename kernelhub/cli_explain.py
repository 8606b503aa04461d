"""`kernelhub explain`: which rule fires, which configuration runs, measured against what."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .dispatch.binding import load_trees
from .dispatch.dispatcher import BoundTree
from .dispatch.explain import Explanation, MissingValue, check_dtypes, explain, parse_values
from .dispatch.policy import order
from .errors import InputError, NotFoundError
from .formats.evidence import Evidence, parse_evidence
from .formats.tpu import chip_of_name
from .formats.tree import DeviceFacts, used_features
from .formats.tree_render import config_text, test_text
from .tree_places import tree_places


@click.command("explain")
@click.argument("where", metavar="KERNEL_OR_PATH")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A feature's value.")
@click.option("--kernel", help="Only this kernel, by its dotted name.")
@click.option("--variant", help="Only the trees of this variant, such as torch-cuda.")
@click.option(
    "--device", "device_name", help="As on this device: that of a tree, or a TPU (tpu-v6e)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    where: str,
    settings: Sequence[str],
    kernel: str | None,
    variant: str | None,
    device_name: str | None,
    as_json: bool,
) -> None:
    """Say which configuration a kernel runs with, and why.

    KERNEL_OR_PATH is a kernel that this machine has loaded (org/name, org/name==1), or a folder
    that holds one: its source, its build, or one variant. Without --set the trees' questions are
    listed.
    """
    places = tree_places(where, variant)
    trees = {
        name: load_trees(name, files, strict=True)
        for name, files in sorted(places.files.items())
        if kernel in (None, name)
    }
    if not trees:
        raise NotFoundError(
            f"{where}: no tree{f' for {kernel}' if kernel else ''}",
            hint="tune it with `kernel-builder tune`; without a tree @triton.autotune decides where"
            " the kernel has one, and else what its author wrote",
        )
    everything = [tree for of_one in trees.values() for tree in of_one]
    device = _device(everything, device_name)
    _check_names(settings, everything)
    check_dtypes(settings, everything, list(filter(None, map(_evidence, everything))))
    reports = [_report(name, of_one, settings, device) for name, of_one in trees.items()]
    unanswered = [report["missing"] for report in reports if report["missing"] is not None]
    if len(unanswered) == len(reports):
        raise unanswered[0]
    if as_json:
        variants = {"here": places.here, "elsewhere": places.elsewhere}
        rows = [{**report, "variants": variants} for report in reports]
        click.echo(json.dumps(rows, indent=2, default=str))
        return
    if places.here:
        more = ", ".join(places.elsewhere)
        note = f"; published and not on this machine: {more}" if more else ""
        click.echo(f"variants here: {', '.join(places.here)}{note}")
    for report in reports:
        _print(report)


def _report(
    name: str, trees: Sequence[BoundTree], settings: Sequence[str], device: DeviceFacts | None
) -> dict[str, Any]:
    asked = {f: tree.tree.features[f] for tree in trees for f in used_features(tree.tree)}
    report: dict[str, Any] = {
        "kernel": name,
        "device": None if device is None else device.name,
        "trees": [{"path": tree.path, "device": tree.device.name} for tree in trees],
        "features": asked,
        "default": not order(trees, device),
        "choices": [],
        "missing": None,
    }
    if settings or not asked:
        values = parse_values([s for s in settings if s.partition("=")[0] in asked], asked)
        try:
            found = explain(trees, device, values)
        except MissingValue as error:  # the other kernels of the package may need no more
            report["missing"] = error
        else:
            report["choices"] = [_choice(one, values) for one in found]
    return report


def _check_names(settings: Sequence[str], trees: Sequence[BoundTree]) -> None:
    """A name that no kernel of the package has is a mistake; one that no tree asks for is not."""
    asked = {name for tree in trees for name in used_features(tree.tree)}
    given = {setting.partition("=")[0] for setting in settings}
    if given <= asked:
        return
    evidences = filter(None, map(_evidence, trees))
    known = asked.union(*(point.features for found in evidences for point in found.points))
    if unknown := sorted(given - known):
        raise InputError(
            f"no kernel here is told apart by {', '.join(unknown)}",
            hint="the trees ask for " + (", ".join(sorted(asked)) or "nothing"),
        )


def _device(trees: Sequence[BoundTree], name: str | None) -> DeviceFacts | None:
    if name is None:
        from .target import detect

        return detect().device
    for tree in trees:
        if name in (tree.device.name, tree.device.slug):
            return tree.device
    chip = chip_of_name(name)
    if chip is not None:
        return chip.facts
    known = ", ".join(sorted({tree.device.slug for tree in trees})) or "none"
    raise InputError(f"no tree of device {name}", hint=f"devices with trees: {known}")


def _choice(found: Explanation, values: Mapping[str, Any]) -> dict[str, Any]:
    evidence = _evidence(found.source)
    return {
        "origin": found.origin,
        "tree": found.source.path,
        "tuned_on": found.source.device.name,
        "rule": [{"test": test_text(step.test), "holds": step.holds} for step in found.steps],
        "ranking": [dict(config) for _, config in found.ranking],
        "measured": None if evidence is None else _measured(evidence, found, values),
    }


def _evidence(bound: BoundTree) -> Evidence | None:
    path = Path(bound.path).with_suffix(".json")
    return parse_evidence(path.read_bytes(), str(path)) if path.is_file() else None


def _measured(evidence: Evidence, found: Explanation, values: Mapping[str, Any]) -> dict[str, Any]:
    """What the tree was measured against: at these very values if they were measured."""
    configs = [dict(config) for _, config in found.ranking]
    listed = [evidence.configs.index(c) if c in evidence.configs else -1 for c in configs]
    points = [
        {
            "case": point.case,
            "held_out": point.held_out,
            "best_ms": point.best_ms,
            "ranking_ms": [point.times().get(index) for index in listed],
        }
        for point in evidence.points
        if all(point.features.get(name) == value for name, value in values.items())
    ]
    return {
        "modelled": evidence.modelled,
        "policy": evidence.policy,
        "tools": evidence.tools,
        "points": points,
        "max_slowdown": evidence.goal.max_slowdown,
        "met": evidence.goal.met,
        "scores": evidence.scores.model_dump(mode="json"),
    }


def _print(report: Mapping[str, Any]) -> None:
    click.echo(f"{report['kernel']} on {report['device'] or 'a machine without a GPU'}")
    for tree in report["trees"]:
        click.echo(f"  tree of {tree['device']}: {tree['path']}")
    if report["default"]:
        click.echo("  no tree is for this device or fits it: the author's default decides")
    if report["missing"] is not None:
        click.echo(f"  not answered: {report['missing']}")
        return
    if not report["choices"]:
        asked = " ".join(f"{name}=<{kind}>" for name, kind in report["features"].items())
        click.echo(f"  trees ask: {asked}")
        return
    for place, choice in enumerate(report["choices"]):
        verb = "decides" if place == 0 else "would be asked next"
        click.echo(f"  {choice['origin']} tree of {choice['tuned_on']} {verb}:")
        for step in choice["rule"]:
            click.echo(f"    {step['test']}: {'yes' if step['holds'] else 'no'}")
        for rank, config in enumerate(choice["ranking"], start=1):
            click.echo(f"    {rank}. {config_text(config)}")
        _print_measured(choice["measured"])


def _print_measured(measured: Mapping[str, Any] | None) -> None:
    if measured is None:
        click.echo("    no evidence lies beside this tree")
        return
    how = ", ".join(f"{name} {value}" for name, value in measured["policy"].items())
    tools = ", ".join(f"{name} {version}" for name, version in measured["tools"].items())
    said = "compiled and modelled, not timed" if measured["modelled"] else "measured"
    click.echo(f"    {said}: {how}; {tools}")
    for point in measured["points"]:
        times = ", ".join("-" if t is None else f"{t:.4g}" for t in point["ranking_ms"])
        best = "-" if point["best_ms"] is None else f"{point['best_ms']:.4g}"
        click.echo(f"    {point['case'] or 'a point'} in ms: {times}; best known {best}")
    if not measured["points"]:
        verb = "modelled" if measured["modelled"] else "measured"
        click.echo(f"    these values themselves were not {verb}")
    for name, score in measured["scores"].items():
        if score["geomean"] is not None:
            click.echo(
                f"    {name.replace('_', ' ')}: {score['points']} points, slowdown geomean "
                f"{score['geomean']:.3f}, worst {score['worst']:.3f}"
            )
