"""The JAX package against float64, in Pallas's interpret mode where there is no accelerator."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

from kernelhub.errors import DispatchError

LIMIT = {"float32": 1e-6, "bfloat16": 8e-3, "float16": 1e-3}


def inputs(shape, dtype, seed=0):
    """x, weight, dy, made by numpy: jax.random is compiled anew for each shape."""
    random = np.random.default_rng(seed)
    sizes = (shape, shape[-1:], shape)
    return [jnp.asarray(random.standard_normal(size), dtype) for size in sizes]


def reference(x, w, dy, eps):
    """y, dx and dw in float64."""
    x, w, dy = (np.asarray(a.astype(jnp.float32), np.float64) for a in (x, w, dy))
    rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    xhat, g = x * rstd, dy * w
    dx = rstd * (g - xhat * (g * xhat).mean(-1, keepdims=True))
    return xhat * w, dx, (dy * xhat).reshape(-1, w.size).sum(0)


def compare(got, want, dtype):
    for name, value, exact in zip(("y", "dx", "dw"), got, want, strict=True):
        assert value.dtype == jnp.dtype(dtype)
        error = np.linalg.norm(np.asarray(value.astype(jnp.float32), np.float64) - exact)
        assert error <= LIMIT[dtype] * np.linalg.norm(exact), f"{name}: {error:.1e}"


def check(kernel, shape, dtype, eps=1e-5):
    x, w, dy = inputs(shape, dtype)
    y, pull = jax.vjp(lambda x, w: kernel.rms_norm(x, w, eps), x, w)
    compare((y, *pull(dy)), reference(x, w, dy, eps), dtype)


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", *(pytest.param(d, marks=pytest.mark.slow) for d in ("float32", "float16"))],
)
def test_forward_and_backward(kernel, dtype):
    check(kernel, (3, 7, 300), dtype)


@pytest.mark.slow
def test_several_blocks_and_a_rest(kernel):
    check(kernel, (1100, 257), "float32")


@pytest.mark.parametrize("shape", [(5,), pytest.param((1, 2), marks=pytest.mark.slow), (0, 4)])
def test_small(kernel, shape):
    check(kernel, shape, "float32")


def test_no_columns(kernel):
    assert kernel.rms_norm(jnp.ones((4, 0)), jnp.ones(0)).shape == (4, 0)


@pytest.mark.slow
def test_jit_and_vmap(kernel):
    x, w, _ = inputs((4, 5, 33), "float32")
    mapped = jax.jit(jax.vmap(lambda row: kernel.rms_norm(row, w)))(x)
    np.testing.assert_allclose(mapped, kernel.rms_norm(x, w), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_tpu_interpreter_finds_no_race(kernel, capfd):
    """Uninitialised memory is NaN there: rows past the end must not reach the weight's gradient."""
    tpu = importlib.import_module(f"{kernel.__name__}.tpu")
    x, w, dy = inputs((37, 130), "float32")
    mode = pltpu.InterpretParams(
        detect_races=True, out_of_bounds_reads="uninitialized", uninitialized_memory="nan"
    )
    y = tpu.rms_norm_forward(x, w, eps=1e-5, interpret=mode, block_rows=16)
    dx, partial = tpu.rms_norm_backward(x, w, dy, eps=1e-5, interpret=mode, block_rows=16)
    compare((y, dx, partial.sum((0, 1))), reference(x, w, dy, 1e-5), "float32")
    assert "RACE DETECTED" not in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(37, 130), (5, 16)])
def test_gpu_kernels_interpreted(kernel, shape):
    gpu = importlib.import_module(f"{kernel.__name__}.gpu")
    x, w, dy = inputs(shape, "float32")
    y = gpu.rms_norm_forward(x, w, eps=1e-5, interpret=True)
    dx, partial = gpu.rms_norm_backward(x, w, dy, eps=1e-5, interpret=True)
    compare((y, dx, partial.sum((0, 1))), reference(x, w, dy, 1e-5), "float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "platform", "target"),
    [
        ("TPU v4", "tpu", "tpu_custom_call"),
        ("TPU7x", "tpu", "tpu_custom_call"),
        ("NVIDIA H200", "cuda", "__gpu$xla.gpu.triton"),
    ],
)
def test_lowers(kernel, kind, platform, target):
    """Every configuration, forward and backward."""
    device = jax.sharding.AbstractDevice(
        device_kind=kind, num_cores=1, platform="gpu" if platform == "cuda" else platform
    )
    x, w, dy = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((100, 300), (300,), (100, 300)))
    module = importlib.import_module(f"{kernel.__name__}.{'gpu' if platform == 'cuda' else 'tpu'}")
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    for tunable, arrays in (
        (module.rms_norm_forward, (x, w)),
        (module.rms_norm_backward, (x, w, dy)),
    ):
        for config in tunable.declared:
            with jax.sharding.use_abstract_mesh(mesh):

                def run(*a, tunable=tunable, config=config):
                    return tunable.function(*a, eps=1e-5, **config)

                text = jax.jit(run).trace(*arrays).lower(lowering_platforms=(platform,)).as_text()
            assert f"custom_call @{target}" in text, config


class TestRefusals:
    def test_other_arrays(self, kernel):
        with pytest.raises(TypeError, match=r"x must be a jax.Array, not ndarray"):
            kernel.rms_norm(np.ones((2, 8)), jnp.ones(8))

    def test_weight(self, kernel):
        with pytest.raises(ValueError, match=r"weight must be \(4,\)"):
            kernel.rms_norm(jnp.ones((2, 4)), jnp.ones(3))

    def test_dtype(self, kernel):
        with pytest.raises(ValueError, match="x must have a dimension and be float32"):
            kernel.rms_norm(jnp.ones((2, 4), jnp.int32), jnp.ones(4))

    def test_symbolic_sizes(self, kernel):
        one = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n, 8"), jnp.float32)
        weight = jax.ShapeDtypeStruct((8,), jnp.float32)
        with pytest.raises(ValueError, match="every size must be a number"):
            jax.export.export(jax.jit(kernel.rms_norm))(one, weight)

    def test_eps(self, kernel):
        x, weight = jnp.ones((2, 4)), jnp.ones(4)
        with pytest.raises(TypeError, match=r"eps is traced.*static_argnames"):
            jax.jit(kernel.rms_norm)(x, weight, 1e-6)
        with pytest.raises(ValueError, match="eps must be finite and at least 0, not -1"):
            kernel.rms_norm(x, weight, -1.0)

    def test_rows_that_no_chip_holds(self, kernel):
        x, weight = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 1 << 20), (1 << 20,)))
        wanted = r"8 whole rows needs at least 160.0 MiB of VMEM and TPU 7x has 64 MiB"
        device = jax.sharding.AbstractDevice(device_kind="TPU7x", num_cores=1, platform="tpu")
        mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
        with jax.sharding.use_abstract_mesh(mesh), pytest.raises(DispatchError, match=wanted):
            jax.jit(kernel.rms_norm).trace(x, weight)
