"""torch tensors through JAX programs on a real GPU: no copies, ordered streams, right gradients.

JAX takes three quarters of the GPU when it starts unless XLA_PYTHON_CLIENT_PREALLOCATE=false.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402 - only where jax is

from kernelhub.bridge import as_torch  # noqa: E402
from kernelhub.errors import InputError  # noqa: E402


def jax_has_a_gpu() -> bool:
    return torch.cuda.is_available() and jax.default_backend() == "gpu"


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not jax_has_a_gpu(), reason="needs a GPU that torch and JAX see"),
    pytest.mark.filterwarnings("default"),
]
SIZE = 1 << 20
LONG = 600_000_000
"""Clock cycles that a stream is kept busy for: 0.3 s at 2 GHz."""


class WithoutOrder:
    """A tensor that hands its memory over without a word about streams: the control."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, *, stream: object = None) -> object:
        return self._tensor.__dlpack__(stream=-1)

    def __dlpack_device__(self) -> object:
        return self._tensor.__dlpack_device__()


def streams() -> list[torch.cuda.Stream]:
    return [torch.cuda.default_stream(), torch.cuda.Stream()]


def filled_late(value: float) -> torch.Tensor:
    """A tensor of zeros that the current stream will fill, after a long wait."""
    x = torch.zeros(SIZE, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    return x.fill_(value)


def test_no_copy_either_way() -> None:
    from kernelhub.bridge.crossing import to_jax, to_torch

    for x in (
        torch.randn(64, 128, device="cuda"),
        torch.randn(64, 128, device="cuda").T,
        torch.randn(64, 128, device="cuda", dtype=torch.bfloat16),
        torch.zeros(256, device="cuda", dtype=torch.float8_e4m3fn),
    ):
        array = to_jax(x)
        assert array.unsafe_buffer_pointer() == x.data_ptr()
        array = jnp.sin(jnp.asarray(array, jnp.float32)).block_until_ready()
        (y,) = to_torch([array], [x])
        assert y.data_ptr() == array.unsafe_buffer_pointer()
        assert y.device == x.device
    x = torch.randn(SIZE, device="cuda")
    before = torch.cuda.memory_allocated()
    y = as_torch(lambda x: x * 2)(x)
    assert torch.cuda.memory_allocated() == before  # the result is JAX's memory
    torch.testing.assert_close(y, x * 2)


def test_what_is_copied_has_the_right_values() -> None:
    double = as_torch(lambda x: x * 2)
    x = torch.randn(64, 64, device="cuda")
    for view in (x[:, 1:9], x[::2], x.flatten()[1:], x[:1].expand(8, 64), x.T, x.flatten()[4:]):
        torch.testing.assert_close(double(view), view * 2)


def test_jax_waits_for_torch() -> None:
    double = as_torch(lambda x: x * 2)
    double(torch.zeros(SIZE, device="cuda"))  # compiled
    for stream in streams():
        with torch.cuda.stream(stream):
            x = filled_late(7.0)
            y = double(x)
            assert not stream.query(), "the call waited for the GPU, or the GPU for nothing"
            assert bool((y == 14.0).all())


def test_the_control_reads_too_early() -> None:
    """Without DLPack's word about streams the same program reads what is not there yet."""
    program = jax.jit(lambda x: x * 2)
    with torch.cuda.stream(torch.cuda.Stream()):
        program(jax.dlpack.from_dlpack(torch.zeros(SIZE, device="cuda"))).block_until_ready()
        x = filled_late(7.0)
        early = program(jax.dlpack.from_dlpack(WithoutOrder(x))).block_until_ready()
    assert float(early[0]) == 0.0


def long_program() -> Callable[[jax.Array], jax.Array]:
    def body(_: int, y: jax.Array) -> jax.Array:
        return y @ y / jnp.linalg.norm(y) + 1e-3

    def program(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 200, body, x).sum() * 0 + x[0] + 3

    return program


def test_torch_waits_for_jax() -> None:
    late = as_torch(long_program())
    x = torch.ones(4096, 4096, device="cuda")
    late(x)
    torch.cuda.synchronize()
    for stream in streams():
        with torch.cuda.stream(stream):
            y = late(x)
            z = y + 1
            done = torch.cuda.Event()
            done.record(stream)
            assert not done.query(), "the program is too short to prove anything"
            torch.testing.assert_close(z, x[0] + 4)


def test_memory_is_not_used_again_while_torch_reads_it() -> None:
    """Results go out of scope on the host long before the stream has read them."""
    double = as_torch(lambda x: x * 2)
    x = torch.ones(SIZE, device="cuda")
    double(x)
    with torch.cuda.stream(torch.cuda.Stream()):
        kept = []
        for number in range(20):
            given = x * number
            y = double(given)
            torch.cuda._sleep(LONG // 30)
            kept.append(y + 1)
            del y, given
        for number, value in enumerate(kept):
            assert bool((value == 2 * number + 1).all())


def test_gradients() -> None:
    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w)

    x, w = torch.randn(256, 128, device="cuda"), torch.randn(128, 64, device="cuda")
    dy = torch.randn(256, 64, device="cuda")
    want = [t.double().requires_grad_() for t in (x, w)]
    torch.tanh(want[0] @ want[1]).backward(dy.double())
    mine = [t.clone().requires_grad_() for t in (x, w)]
    with jax.default_matmul_precision("highest"):
        as_torch(function)(*mine).backward(dy)
    for got, right in zip(mine, want, strict=True):
        assert ((got.grad.double() - right.grad).norm() / right.grad.norm()).item() < 1e-5


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_whole(backend: str) -> None:
    op = as_torch(lambda x, by: jnp.sin(x) * by)

    def program(x: torch.Tensor) -> torch.Tensor:
        return (op(x * 2, 2.5) + 1).sum()

    compiled = torch.compile(program, backend=backend, fullgraph=True)
    for size in (512, 768):
        x = torch.randn(size, device="cuda", requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, torch.cos(2 * x.detach()) * 5, rtol=1e-4, atol=1e-4)


def test_a_pallas_kernel() -> None:
    from jax.experimental import pallas as pl

    def body(x_ref: object, y_ref: object) -> None:
        y_ref[...] = x_ref[...] * 2 + 1  # type: ignore[index]

    def kernel(x: jax.Array) -> jax.Array:
        block = pl.BlockSpec((1024,), lambda i: (i,))
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(
            body, out_shape=shape, grid=(x.shape[0] // 1024,), in_specs=[block], out_specs=block
        )(x)

    x = torch.randn(1 << 16, device="cuda")
    torch.testing.assert_close(as_torch(kernel)(x), x * 2 + 1)


def test_not_in_a_graph() -> None:
    double = as_torch(lambda x: x * 2)
    x = torch.ones(16, device="cuda")
    double(x)
    with pytest.raises(InputError, match="CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        double(x)
    torch.testing.assert_close(double(x), x * 2)


def test_tensors_of_two_devices_are_refused() -> None:
    with pytest.raises(InputError, match="several devices"):
        as_torch(lambda x, y: x + y)(torch.ones(2), torch.ones(2, device="cuda"))
