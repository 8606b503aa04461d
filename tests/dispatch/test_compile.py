"""torch.compile sees the tree's configuration, with no graph break, where it would see them all."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernelhub.formats.tree import Categorical, Leaf, Numeric, Split, Tiles  # noqa: E402

from .helpers import H100, L4, config, tree  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
FEATURES = {"n": "int", "x_dtype": "str", "x_dim0": "int"}
ROOT = Split(
    Categorical("x_dtype", ("float16",)),
    Leaf((1,)),
    Split(Numeric(("n", "x_dim0"), 1_000_000), Leaf((0, 1)), Leaf((1, 0))),
)


@pytest.fixture
def compiled(device, monkeypatch):
    """Compiles a function with fullgraph; also says which kernels its graphs hold.

    torch only knows Triton kernels where it sees a GPU, so it is told that it does. What a GPU
    would add is inductor's code for the kernel that is looked at here.
    """
    from torch._dynamo.variables import builder
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
    from torch.utils import _triton

    monkeypatch.setattr(_triton, "has_triton", lambda: True)
    monkeypatch.setattr(builder, "has_triton", lambda: True, raising=False)
    torch._dynamo.reset()
    kernels = []

    def backend(module, _):
        for node in module.graph.nodes:
            if "kernel_idx" in node.kwargs:
                kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
                configs = [c.all_kwargs() for c in kernel.configs]
                kernels.append((configs, node.kwargs["grid"]))
        return module.forward

    def compile_it(function):
        program = torch.compile(function, fullgraph=True, backend=backend, dynamic=False)

        def seen(*args):
            kernels.clear()
            program(*args)
            (found,) = kernels
            return found

        return seen

    return compile_it


def test_one_configuration_is_left(compiled, package, give) -> None:
    give(tree("ops.scale", ROOT, config(1024, 8), config(256), features=FEATURES))
    scale = package.ops.scale

    def program(x, out, n):
        scale[lambda meta: (n // meta["BLOCK"] + 1,)](x, out, n, 1.5, True)
        return out + 1

    seen, x, out = compiled(program), torch.empty(4096), torch.empty(4096)
    assert seen(x, out, 100) == ([config(1024, 8)], [(1, 1, 1)])  # not one of the author's
    assert seen(x, out, 5000) == ([config(256)], [(20, 1, 1)])
    assert seen(x.half(), out, 100) == ([config(256)], [(1, 1, 1)])


def test_tiles_are_counted_in_the_compiled_program(compiled, package, give) -> None:
    root = Split(Numeric((Tiles("n", 128),), 8), Leaf((0,)), Leaf((1,)))
    give(tree("ops.scale", root, config(1024, 8), config(256), features=FEATURES))
    scale = package.ops.scale

    def program(x, out, n):
        scale[lambda meta: (n // meta["BLOCK"] + 1,)](x, out, n, 1.5, True)
        return out + 1

    seen, x, out = compiled(program), torch.empty(4096), torch.empty(4096)
    assert seen(x, out, 1024)[0] == [config(1024, 8)]
    assert seen(x, out, 1025)[0] == [config(256)]


def test_heuristics_and_pruning_are_kept(compiled, package, give) -> None:
    give(
        tree("ops.inner_heuristics", Leaf((0,)), config(256)),
        tree("ops.pruned", Leaf((0, 1)), config(256), config(128)),
        tree("ops.modelled", Leaf((0,)), config(256)),
    )
    x, out = torch.empty(4096), torch.empty(4096)
    for name, wanted in (
        ("inner_heuristics", {**config(256), "EVEN": False}),
        ("pruned", config(128)),  # the author allows no block above n
        ("modelled", config(256)),
    ):
        kernel = getattr(package.ops, name)
        kernel.reset_to_zero = []
        more = (7,) if name == "modelled" else ()

        def program(x, out, kernel=kernel, more=more):
            kernel[(1,)](x, out, 200, *more)
            return out + 1

        configs, _ = compiled(program)(x, out)
        assert configs == [wanted]


@pytest.mark.parametrize("given", [H100, L4])
def test_without_a_tree_for_this_device(compiled, package, give, given) -> None:
    give(tree("ops.scale", Leaf((0,)), config(512), device=given))
    program = lambda x, out: package.ops.scale[(1,)](x, out, 9, 1.5, True) or out + 1  # noqa: E731
    configs, _ = compiled(program)(torch.empty(64), torch.empty(64))
    assert [c["BLOCK"] for c in configs] == ([512] if given is H100 else [128, 256, 512])


def test_functions_are_inlined(package, give) -> None:
    root = Split(Numeric(("n", "x_dim0"), 1000), Leaf((0,)), Leaf((1,)))
    give(
        tree("functions.scan", root, {"block": 64, "algorithm": "split"},
             {"block": 256, "algorithm": "fused"}, features={"n": "int", "x_dim0": "int"})
    )  # fmt: skip
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="eager")
    def program(x, n):
        _, block = package.functions.scan(x, n)
        return x + block, package.functions.area(x[:, None])

    assert program(torch.zeros(4), 10)[0][0] == 64
    value, tile = program(torch.zeros(4000), 10)
    assert (value[0], tile) == (256, 16)


def test_a_torch_that_cannot_read_the_tree_of_such_a_kernel_sees_the_author(
    device, package, give, monkeypatch, caplog
) -> None:
    """Up to torch 2.11 heuristics and a pruning together end the compilation."""
    from torch._higher_order_ops.triton_kernel_wrap import TritonHOPifier

    give(
        tree("ops.inner_heuristics", Leaf((0,)), config(512)),
        tree("ops.scale", Leaf((0,)), config(512)),
    )
    kernel, other = package.ops.inner_heuristics, package.ops.scale
    assert kernel.early_config_prune is not None
    monkeypatch.delattr(TritonHOPifier, "get_kernel_source")
    assert kernel.early_config_prune is None
    assert {c.kwargs["BLOCK"] for c in kernel.configs}.isdisjoint({512})
    assert other.early_config_prune is not None
    assert "ops.inner_heuristics: this torch cannot compile it with its tree" in caplog.text
