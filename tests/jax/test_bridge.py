"""Functions of JAX arrays as functions of torch tensors, on the CPU."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest

from kernelhub.errors import InputError

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402

from kernelhub.bridge import as_torch  # noqa: E402


def crossing(tensor):
    """The array of a tensor, and whether it is the same memory."""
    from kernelhub.bridge.crossing import to_jax

    array = to_jax(tensor)
    return array, array.unsafe_buffer_pointer() == tensor.data_ptr()


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool", "complex64",
     "float8_e4m3fn"],
)  # fmt: skip
def test_memory_is_shared(dtype) -> None:
    tensor = (torch.arange(64).reshape(4, 16) % 2).to(getattr(torch, dtype))
    array, shared = crossing(tensor)
    assert shared
    assert array.dtype.name == dtype
    wanted = (jnp.arange(64).reshape(4, 16) % 2).astype(array.dtype)
    assert jnp.array_equal(array.astype(jnp.complex64), wanted.astype(jnp.complex64))


@pytest.mark.parametrize(
    ("tensor", "shares"),
    [
        (torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1), True),
        (torch.arange(12.0).reshape(3, 4).T, True),
        (torch.arange(64.0).reshape(8, 8)[:, :4], False),
        (torch.arange(64.0).reshape(8, 8)[::2], False),
        (torch.arange(4.0).expand(3, 4), False),
        (torch.arange(17.0)[1:], False),
        (torch.arange(16.0).reshape(4, 4)[:1], True),
        (torch.tensor(3.0), True),
        (torch.zeros(0, 3), None),
        (torch.randn(4, dtype=torch.complex64).conj(), False),
    ],
)
def test_layouts(tensor, shares) -> None:
    """Dense memory is shared in whatever order of axes; the rest is copied, never misread."""
    array, shared = crossing(tensor)
    assert shares in (None, shared)
    assert torch.equal(torch.from_dlpack(jnp.array(array)), tensor.resolve_conj())
    assert torch.equal(as_torch(lambda x: x * 2)(tensor), tensor * 2)


def test_results_are_memory_of_their_own() -> None:
    table = jnp.arange(5.0)
    same = as_torch(lambda x: (x, x, table, x + 1))
    x = torch.arange(5.0)
    first = same(x)
    pointers = {tensor.data_ptr() for tensor in first}
    assert len(pointers | {x.data_ptr()}) == 5
    for tensor in first:
        tensor.fill_(-1.0)
    assert torch.equal(x, torch.arange(5.0))
    assert torch.equal(same(x)[2], torch.arange(5.0))


class Pair(NamedTuple):
    first: object
    second: object


def test_arguments_and_results_of_every_form() -> None:
    def function(x, w, *, scale=1.0, names=("a", 1), more=None):
        y = x @ w * scale
        return Pair(y, {names[0]: [y.sum()], "at": jnp.argmax(y)}), more, ()

    x, w = torch.randn(4, 5), torch.randn(5, 3)
    (y, rest), more, empty = as_torch(function)(x, w=w, scale=2.0, names=("sum", 2))
    torch.testing.assert_close(y, x @ w * 2)
    torch.testing.assert_close(rest["sum"][0], (x @ w * 2).sum())
    assert rest["at"].dtype == torch.int32
    assert (rest["at"], more, empty) == (int((x @ w * 2).argmax()), None, ())


def test_arguments_that_are_equal_to_python_and_differ() -> None:
    kind = as_torch(lambda x, by: x + {int: 1, float: 2, bool: 3}[type(by)])
    x = torch.zeros(1)
    assert [kind(x, by).item() for by in (1, 1.0, True, 1)] == [1, 2, 3, 1]


def test_each_signature_is_traced_once() -> None:
    traces = []

    def function(x, by):
        traces.append((x.shape, by))
        return x * by

    double = as_torch(function)
    for _ in range(3):
        double(torch.ones(3), 2)
        double(torch.ones(4), 2)
        double(torch.ones(3), 5)
    assert traces == [((3,), 2), ((4,), 2), ((3,), 5)]


def test_two_functions_of_one_name_stay_apart() -> None:
    add, subtract = as_torch(lambda x: x + 1), as_torch(lambda x: x - 1)
    assert (add(torch.zeros(1)).item(), subtract(torch.zeros(1)).item()) == (1, -1)


def kernel(x, w):
    """A Pallas kernel with a gradient of its own."""

    def body(x_ref, w_ref, y_ref):
        y_ref[...] = jnp.sin(x_ref[...]) * w_ref[...]

    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, out_shape=shape, interpret=True)(x, w)


rule_ran: list[str] = []


@jax.custom_vjp
def with_rule(x, w):
    return kernel(x, w)


def _forward(x, w):
    rule_ran.append("forward")
    return kernel(x, w), (x, w, jnp.cos(x))


def _backward(saved, dy):
    rule_ran.append("backward")
    x, w, cosine = saved
    return dy * w * cosine, dy * jnp.sin(x)


with_rule.defvjp(_forward, _backward)


def gradients(function, *arguments):
    leaves = [value.detach().clone().requires_grad_() for value in arguments]
    function(*leaves).square().sum().backward()
    return [leaf.grad for leaf in leaves]


def test_gradients_are_those_of_torch() -> None:
    x, w = torch.randn(8, 16), torch.randn(8, 16)
    wanted = gradients(lambda x, w: torch.sin(x) * w, x, w)
    rule_ran.clear()
    found = gradients(as_torch(with_rule), x, w)
    torch.testing.assert_close(found, wanted)
    assert rule_ran == ["forward", "backward"]  # traced once each; the kernel's own rule


def test_gradients_in_double_precision() -> None:
    """Against finite differences, in float64, which needs a JAX that computes in it."""
    with jax.enable_x64(True):
        function = as_torch(lambda x, w: (jnp.tanh(x @ w), (x * x).sum()))
        x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        w = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(function, (x, w))


def test_only_what_requires_grad_gets_one() -> None:
    function = as_torch(lambda x, n, w: (x * w * n, n + 1))
    x, w = torch.randn(4, requires_grad=True), torch.randn(4)
    n = torch.arange(4, dtype=torch.int32)
    y, count = function(x, n, w)
    y.sum().backward()
    torch.testing.assert_close(x.grad, w * n)
    assert y.requires_grad
    assert not count.requires_grad
    with torch.no_grad():
        assert not function(x, n, w)[0].requires_grad


def test_one_result_of_several_and_a_transposed_slope() -> None:
    function = as_torch(lambda x: (x * x, x.sum(), jnp.exp(x)))
    x = torch.randn(3, 4, requires_grad=True)
    function(x)[2].T.contiguous().mul(torch.arange(12.0).reshape(4, 3)).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().exp() * torch.arange(12.0).reshape(4, 3).T)


def test_backward_twice_and_in_place_changes() -> None:
    square = as_torch(lambda x: x * x)
    x = torch.randn(4, requires_grad=True)
    y = square(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad, 4 * x.detach())
    z = x * 1
    y = square(z).sum()
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_second_order_is_refused() -> None:
    x = torch.randn(4, requires_grad=True)
    (slope,) = torch.autograd.grad(as_torch(lambda x: x**3)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(slope.sum(), x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its own
def test_transforms_of_torch_are_refused_with_what_to_do_instead() -> None:
    """Of forward-mode differentiation torch itself makes tangents of zero."""
    double, x = as_torch(lambda x: 2 * x), torch.ones(2, 3)
    ones = torch.ones_like(x)
    for transformed in (
        lambda: torch.vmap(double)(x),
        lambda: torch.func.grad(lambda x: double(x).sum())(x),
        lambda: torch.func.jvp(double, (x,), (ones,)),
    ):
        with pytest.raises(InputError, match=r"torch\.vmap or torch\.func") as caught:
            transformed()
        assert "as_torch(jax.vmap(f))" in caught.value.hint
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, ones)
        with pytest.raises(InputError, match="forward-mode"):
            double(dual)
        torch.testing.assert_close(double(x), x * 2)
    torch.testing.assert_close(as_torch(jax.vmap(lambda row: row * 2))(x), x * 2)


def test_torch_compile_without_a_break() -> None:
    torch._dynamo.reset()
    op = as_torch(with_rule)
    scaled = as_torch(lambda x, by, *, flip=False: {"y": -x * by if flip else x * by, "n": x.sum()})

    def program(x, w, by):
        y = op(x * 2, w) + 1
        found = scaled(y, by, flip=True)
        return found["y"] + found["n"]

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    for size in (16, 3, 7):
        x, w = torch.randn(size), torch.randn(size)
        wanted = -(torch.sin(2 * x) * w + 1) * 2.5 + (torch.sin(2 * x) * w + 1).sum()
        torch.testing.assert_close(compiled(x, w, 2.5), wanted)
    torch.testing.assert_close(compiled(x, w, 1.5), program(x, w, 1.5))
    torch.testing.assert_close(
        gradients(lambda x, w: compiled(x, w, 0.5), x, w),
        gradients(lambda x, w: program(x, w, 0.5), x, w),
    )


def test_a_graph_of_another_process_finds_no_program() -> None:
    as_torch(lambda x: x)(torch.zeros(1))
    with pytest.raises(InputError, match="of another process"):
        torch.ops.kernelhub.jax_call([torch.zeros(1)], "scale-0123-7")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.arange(3),), "argument 1 is torch.int64, which JAX would cut to int32"),
        ((torch.zeros(3, dtype=torch.float64),), "cut to float32"),
        ((torch.zeros(3, device="meta"),), "argument 1 is on meta"),
        ((torch.eye(3).to_sparse(),), "argument 1 is not a dense tensor"),
        ((torch.zeros(3), [torch.zeros(3)]), "neither a tensor nor hashable"),
        ((torch.zeros(3), (1, torch.zeros(3))), "argument 2 is a tuple with a tensor"),
        ((torch.zeros(3), jnp.zeros(3)), "neither a tensor nor hashable"),
        ((1, 2), "no argument is a tensor"),
        ((torch.zeros(3), torch.zeros(3, device="meta")), "argument 2 is on meta"),
        ((torch.empty(2, dtype=torch.bits8),), "torch.bits8, which JAX does not have"),
    ],
)
def test_what_cannot_cross_is_refused(arguments, message) -> None:
    with pytest.raises(InputError, match=message):
        as_torch(lambda *those: those[0])(*arguments)


def test_only_functions_and_only_results_that_have_tensors() -> None:
    with pytest.raises(InputError, match="takes a function"):
        as_torch(3)
    with pytest.raises(InputError, match="returns a Partial"):
        as_torch(lambda x: jax.tree_util.Partial(jnp.add, x))(torch.zeros(1))


def test_errors_of_the_function_pass() -> None:
    with pytest.raises(ValueError, match="of mine"):
        as_torch(lambda x: (_ for _ in ()).throw(ValueError("of mine")))(torch.zeros(1))


def test_without_jax_or_torch_it_says_what_to_install() -> None:
    """In a process in which the one or the other cannot be imported."""
    code = """if 1:
        import sys
        sys.modules[{hidden!r}] = None
        from kernelhub.bridge import as_torch
        from kernelhub.errors import MissingExtra
        try:
            as_torch(print)
        except MissingExtra as error:
            print(error)
    """
    for hidden in ("jax", "torch"):
        told = subprocess.run(
            [sys.executable, "-c", code.format(hidden=hidden)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "kernelhub.bridge needs packages" in told.stdout
