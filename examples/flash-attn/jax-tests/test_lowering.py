"""Every configuration of the tunables lowers for the chips they are for."""

from __future__ import annotations

import importlib
import re

import jax
import jax.numpy as jnp
import pytest

CHIPS = ("TPU v4", "TPU v5 lite", "TPU v5", "TPU v6 lite", "TPU7x")


def on_chip(kind: str, platform: str, cores: int):
    device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=cores, platform=platform)
    mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


def on_tpu(kind: str):
    return on_chip(kind, "tpu", 1)


def on_h200():
    return on_chip("NVIDIA H200", "gpu", 132)


def targets(function, platform, *arrays):
    text = jax.jit(function).trace(*arrays).lower(lowering_platforms=(platform,)).as_text()
    return re.findall(r"custom_call @([\w.$]+)", text)


def array(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype)


def module(kernel, name):
    return importlib.import_module(f"{kernel.__name__}.{name}")


def resolved(tunable, config):
    return {
        name: tunable.implementations.get(name, {}).get(value, value)
        for name, value in config.items()
    }


@pytest.mark.parametrize(
    "chip", [CHIPS[0], *(pytest.param(chip, marks=pytest.mark.slow) for chip in CHIPS[1:])]
)
def test_public_function_for_tpu(kernel, chip):
    q, kv = array(2, 200, 4, 128), array(2, 300, 2, 128)
    with on_tpu(chip):
        found = targets(lambda *a: kernel.flash_attn_func(*a, causal=True), "tpu", q, kv, kv)
    assert found == ["tpu_custom_call"]


@pytest.mark.parametrize(("chip", "platform"), [("TPU v4", "tpu"), ("NVIDIA H200", "cuda")])
def test_gradients_lower(kernel, chip, platform):
    def loss(q, k, v):
        return kernel.flash_attn_func(q, k, v, causal=True).astype(jnp.float32).sum()

    q, kv = array(2, 200, 4, 96), array(2, 300, 2, 96)
    with on_chip(chip, "gpu" if platform == "cuda" else platform, 1):
        found = targets(jax.grad(loss, argnums=(0, 1, 2)), platform, q, kv, kv)
    assert len(found) == 3  # forward, dq, dk with dv


def test_public_function_for_cuda(kernel):
    q, kv = array(2, 200, 4, 128), array(2, 300, 2, 128)
    with on_h200():
        found = targets(lambda *a: kernel.flash_attn_func(*a, causal=True), "cuda", q, kv, kv)
    assert len(found) == 1
    assert found[0] in ("__gpu$xla.gpu.triton", "mosaic_gpu_v2")


def test_what_no_chip_holds(kernel):
    """Both sides of the comparison are in the text."""
    forward = module(kernel, "tpu_forward")
    q = array(1, 1, 65536, 256)
    options = {
        "strategy": forward.resident,
        "block_q": 512,
        "block_k": 512,
        "blocks": 2,
        "buffers": 2,
    }

    def attention(q):
        return forward.attention_tpu.function(q, q, q, causal=False, scale=1.0, **options)

    wanted = r"at least 1\d\d\.\d MiB of VMEM and TPU 7x has 64 MiB"
    with on_tpu("TPU7x"), pytest.raises(ValueError, match=wanted):
        jax.jit(attention).trace(q)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_tpu_configuration(kernel, dtype, causal):
    tunable = module(kernel, "tpu_forward").attention_tpu
    q, kv = array(1, 2, 2000, 64, dtype=dtype), array(1, 1, 2100, 64, dtype=dtype)
    for config in tunable.declared:
        options = resolved(tunable, config)

        def attention(*a, options=options):
            return tunable.function(*a, causal=causal, scale=0.1, **options)

        with on_tpu("TPU v6 lite"):
            assert targets(attention, "tpu", q, kv, kv) == ["tpu_custom_call"], config


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_backward_configuration(kernel, causal, platform):
    if platform == "tpu":
        tunable = module(kernel, "tpu_backward").backward_tpu
    else:
        tunable = module(kernel, "triton_backward").backward_gpu
    options = {} if platform == "tpu" else {"heads_axis": 1}
    q, kv, row = array(1, 2, 500, 64), array(1, 1, 600, 64), array(1, 2, 500, dtype=jnp.float32)
    for config in tunable.declared:

        def gradients(*a, config=config):
            return tunable.function(*a, causal=causal, scale=0.1, **options, **config)

        with on_tpu("TPU v6 lite") if platform == "tpu" else on_h200():
            found = targets(gradients, platform, q, kv, kv, q, row, row)
        assert len(found) == 2, config


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_every_gpu_configuration(kernel, causal):
    tunable = module(kernel, "gpu_forward").attention_gpu
    q, kv = array(1, 2, 2000, 64), array(1, 1, 2104, 64)
    for config in tunable.declared:
        options = resolved(tunable, config)

        def attention(*a, options=options):
            return tunable.function(*a, causal=causal, scale=0.1, heads_axis=1, **options)

        with on_h200():
            assert len(targets(attention, "cuda", q, kv, kv)) == 1, config
