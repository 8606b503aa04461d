"""Trees choose for kernels that Triton's interpreter runs, and results stay right."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = textwrap.dedent("""
    import sys
    from pathlib import Path
    import torch
    from kernelhub.dispatch import bind, capture
    from kernelhub.formats.tree import Leaf, Numeric, Split, render
    from kernelhub.target import Target
    from helpers import H200, config, tree
    import samples

    folder = Path(sys.argv[1])
    (folder / "tuning").mkdir()
    root = Split(Numeric(("n",), 100), Leaf((0,)), Leaf((1,)))
    for name in ("ops.scale", "ops.inner_heuristics", "ops.outer_heuristics", "ops.pruned"):
        file = folder / "tuning" / f"{name}.nvidia-h200.py"
        file.write_text(render(tree(name, root, config(64), config(256))))
    target = Target(backend={"torch": "cpu"}, device=H200, python="3", platform="any")
    read = lambda name: (folder / name).read_bytes()
    bind(samples, folder, read=read, target=target, overlays=folder / "none")
    ops = samples.ops
    for n in (64, 100, 200, 64):
        x = torch.arange(n, dtype=torch.float32)
        wanted = 64 if n <= 100 else 256
        for kernel, args, expected in (
            (ops.scale, (1.5, True), x * 3), (ops.inner_heuristics, (), x),
            (ops.outer_heuristics, (), x),
        ):
            out = torch.zeros(n)
            seen = []
            kernel[lambda meta: (seen.append(meta["BLOCK"]) or -(-n // meta["BLOCK"]),)](
                x, out, n, *args
            )
            assert seen == [wanted], (kernel, seen)
            assert torch.equal(out, expected), (kernel, out)
    # A transform's tensors have no memory: said for known signatures and new ones, tree or not.
    from kernelhub.errors import DispatchError
    for kernel, n, args in (
        (ops.scale, 64, (1.5, True)), (ops.inner_heuristics, 64, ()),
        (ops.inner_heuristics, 65, ()), (ops.middle, 64, ()),
    ):
        def row(x):
            kernel[(1,)](x, torch.zeros(n), n, *args)
            return x
        try:
            torch.vmap(row)(torch.ones(2, n))
            raise SystemExit(f"{kernel} ran under vmap")
        except DispatchError as error:
            assert "torch.vmap or torch.func" in str(error), error
    out = torch.zeros(300)  # no tree: nothing can be timed here, so the author's default
    ops.middle[lambda meta: (-(-300 // meta["BLOCK"]),)](torch.ones(300), out, n=300, bias=out + 1)
    assert torch.equal(out, torch.full((300,), 2.0)) and not ops.middle.cache
    launches = []
    x, out = torch.ones(300), torch.zeros(300)
    with capture(launches.append):
        ops.pruned[lambda meta: (-(-300 // meta["BLOCK"]),)](x, out, 300)
    assert torch.equal(out, torch.ones(300)) and not x.any()
    x.fill_(2)
    launches[0].run(config(64), restore=True)
    assert torch.equal(out, torch.full((300,), 2.0)) and torch.equal(x, torch.full((300,), 2.0))
    launches[0].compile(config(64))
    print("right")
""")


def test_interpreted_kernels_are_dispatched(tmp_path) -> None:
    here = Path(__file__).parent
    path = os.pathsep.join([str(here.parents[1]), str(here), *filter(None, sys.path)])
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "right\n"
