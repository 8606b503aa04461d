"""The TPU kernels in Pallas's TPU interpreter, which looks for races and fills memory with NaN."""

from __future__ import annotations

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

pytestmark = pytest.mark.slow

RACE = "RACE DETECTED"
MODE = pltpu.InterpretParams(
    detect_races=True, out_of_bounds_reads="uninitialized", uninitialized_memory="nan"
)
# Two heads on one, lengths that no block divides, rows that see no key; then a stream of 3 blocks.
SIZES = {"float32": (1, 2, 1, 150, 140, 24), "bfloat16": (1, 1, 1, 130, 300, 32)}
LIMIT = {"float32": 2e-6, "bfloat16": 8e-3}


@pytest.fixture
def arrays(request):
    dtype = request.param
    batch, heads, heads_k, queries, keys, dim = SIZES[dtype]
    shapes = ((heads, queries), (heads_k, keys), (heads_k, keys), (heads, queries))
    numbers = jax.random.split(jax.random.key(1), 4)
    return [
        jax.random.normal(number, (batch, *shape, dim)).astype(dtype)
        for number, shape in zip(numbers, shapes, strict=True)
    ]


def exact(q, k, v, dout, scale):
    """out, lse, dq, dk, dv, delta in float64, causal from the bottom right."""
    q, k, v, dout = (np.asarray(x.astype(jnp.float32), np.float64) for x in (q, k, v, dout))
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = np.einsum("bhqd,bhkd->bhqk", q, wide_k) * scale
    row, key = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None]
    s = np.where(key <= row + k.shape[2] - q.shape[2], s, -np.inf)
    p = np.exp(s - np.maximum(s.max(-1, keepdims=True), -1e300))
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.maximum(s.max(-1), -1e300) + np.log(total[..., 0])
    p /= np.where(total == 0, 1, total)
    out = np.einsum("bhqk,bhkd->bhqd", p, wide_v)
    delta = (out * dout).sum(-1)
    ds = p * (np.einsum("bhqd,bhkd->bhqk", dout, wide_v) - delta[..., None]) * scale
    shared = (k.shape[0], k.shape[1], group, *k.shape[2:])
    dk = np.einsum("bhqk,bhqd->bhkd", ds, q).reshape(shared).sum(2)
    dv = np.einsum("bhqk,bhqd->bhkd", p, dout).reshape(shared).sum(2)
    return out, lse, np.einsum("bhqk,bhkd->bhqd", ds, wide_k), dk, dv, delta


def close(got, want, dtype):
    error = np.linalg.norm(np.asarray(got.astype(jnp.float32), np.float64) - want)
    assert error <= LIMIT[dtype] * np.linalg.norm(want), error


@pytest.mark.parametrize("strategy", ["stream", "resident"])
@pytest.mark.parametrize("arrays", SIZES, indirect=True)
def test_forward(kernel, arrays, strategy, capfd):
    forward = importlib.import_module(f"{kernel.__name__}.tpu_forward")
    q, k, v, _ = arrays
    config = {
        "strategy": getattr(forward, strategy),
        "block_q": 128,
        "block_k": 128,
        "blocks": 2,
        "buffers": 2,
    }
    out, lse = forward.attention_tpu(q, k, v, causal=True, scale=0.3, interpret=MODE, **config)
    want = exact(*arrays, 0.3)
    close(out, want[0], q.dtype.name)
    np.testing.assert_allclose(lse, want[1], rtol=1e-5, atol=1e-5)
    assert RACE not in capfd.readouterr().out


@pytest.mark.parametrize("arrays", ["float32"], indirect=True)
def test_backward(kernel, arrays, capfd):
    backward = importlib.import_module(f"{kernel.__name__}.tpu_backward")
    _, lse, *gradients, delta = exact(*arrays, 0.3)
    statistics = (jnp.asarray(x, jnp.float32) for x in (lse, delta))
    found = backward.backward_tpu(
        *arrays, *statistics, causal=True, scale=0.3, interpret=MODE, block_q=128, block_k=128
    )
    for got, want in zip(found, gradients, strict=True):
        close(got, want, "float32")
    assert RACE not in capfd.readouterr().out


def test_a_planted_race_is_found(capfd):
    """The copy is read before it has arrived."""

    def body(x, out, block, done):
        copy = pltpu.make_async_copy(x, block, done)
        copy.start()
        out[...] = block[...]
        copy.wait()

    result = pl.pallas_call(
        body,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA],
        interpret=pltpu.InterpretParams(detect_races=True),
    )(jnp.ones((8, 128)))
    jax.block_until_ready(result)
    assert RACE in capfd.readouterr().out
