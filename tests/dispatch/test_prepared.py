"""The prepared launch never reuses a kernel where Triton itself would take another one."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from triton import knobs  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from kernelhub.formats.tree import Leaf, Numeric, Split  # noqa: E402

from .helpers import config, tree  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
# Prepared for each pair of argument kinds, so that what must not be confused comes back to back.
INTS = st.sampled_from([0, 1, 2, 15, 16, 17, 32, -16, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63])
SCALARS = INTS | st.booleans() | st.sampled_from([0.0, 1.0, -0.0, 2.5, 16.0])
DTYPES = st.sampled_from([torch.float16, torch.float32, torch.bfloat16, torch.int8])
BUFFER = torch.zeros(4096, dtype=torch.uint8)


def aligned_view(dtype, offset: int):
    """A tensor of 16 elements whose address is `offset` elements past a multiple of 16 bytes."""
    start = -BUFFER.data_ptr() % 16
    size = torch.empty((), dtype=dtype).element_size()
    return BUFFER[start + offset * size :][: 16 * size].view(dtype)


TENSORS = st.builds(aligned_view, DTYPES, st.integers(0, 4))


@pytest.fixture
def scale(device, package, give):
    give(tree("ops.scale", Split(Numeric(("n",), 100), Leaf((0,)), Leaf((1,))),
              config(128), config(256)))  # fmt: skip
    return package.ops.scale


def expected_kernel(kernel, args, block: int):
    """The compiled kernel that Triton's own path takes for these arguments."""
    return JITFunction.run(
        kernel.fn, *args, grid=(1,), warmup=True, BLOCK=block, num_warps=4, num_ctas=1,
        num_stages=3,
    )  # fmt: skip


@pytest.fixture
def quick_compiler(device, package, monkeypatch) -> None:
    """Each compile gives a new kernel object without the work; specialising is Triton's own."""
    args = (torch.empty(64), torch.empty(64), 100, 1.5, True)
    real = package.ops.plain.warmup(*args, BLOCK=64, grid=(1,))
    monkeypatch.setattr("triton.compiler.compile", lambda *_, **__: copy.copy(real))
    package.ops.plain.device_caches.clear()


@given(calls=st.lists(st.tuples(TENSORS, TENSORS, SCALARS, SCALARS, st.booleans()), max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_the_kernel_that_triton_takes(quick_compiler, scale, device, calls) -> None:
    for x, out, n, factor, flag in calls:
        args = (x, out, n, factor, flag)
        for _ in range(2):  # the second time may be prepared
            try:
                ours = scale[(1,)](*args)
            except Exception as error:  # noqa: BLE001 - the same arguments must fail there too
                with pytest.raises(type(error)):
                    expected_kernel(scale, args, 128 if n <= 100 else 256)
                break
            assert ours is expected_kernel(scale, args, 128 if n <= 100 else 256)
            assert device.last[3][:5] == args


def test_known_calls_are_prepared(scale, device, monkeypatch) -> None:
    x, out = torch.empty(64), torch.empty(64)
    scale[(3,)](x, out, 100, 1.5, True)
    kernel = scale[(3,)](x, out, 100, 1.5, True)
    monkeypatch.setattr(scale.fn, "run", lambda *_, **__: pytest.fail("not prepared"))
    assert scale[(3,)](x, out, 100, 2.5, True) is kernel  # a float's value is not compiled in
    assert scale[lambda meta: (meta["BLOCK"], 7)](x, out, n=100, scale=1.5, FLAG=True) is kernel
    assert device.last[0] == (128, 7, 1)
    assert device.last[3] == (x, out, 100, 1.5, True, 128)
    device.stream = 77
    scale[[5]](out, x, 100, 1.5, True)
    assert device.last[:2] == ((5, 1, 1), 77)


def launches_on_tritons_path(scale, args) -> bool:
    seen = []
    run = scale.fn.run
    scale.fn.run = lambda *a, **k: seen.append(a) or run(*a, **k)
    try:
        scale[(1,)](*args)
    finally:
        del scale.fn.run
    return bool(seen)


def test_anything_unusual_takes_tritons_path(scale, device, monkeypatch) -> None:
    args = (torch.empty(64), torch.empty(64), 100, 1.5, True)
    for _ in range(2):
        scale[(1,)](*args)
    assert not launches_on_tritons_path(scale, args)

    seen = []
    enter = lambda metadata: seen.append(metadata)  # noqa: E731
    knobs.runtime.launch_enter_hook.add(enter)
    try:
        assert launches_on_tritons_path(scale, args)
        assert len(seen) == 1
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
    assert not launches_on_tritons_path(scale, args)

    hook = lambda *_, **__: seen.append("run")  # noqa: E731
    scale.fn.add_pre_run_hook(hook)
    assert launches_on_tritons_path(scale, args)
    assert seen[-1] == "run"
    scale.fn.pre_run_hooks.clear()
    assert not launches_on_tritons_path(scale, args)

    with knobs.runtime.scope():
        knobs.runtime.debug = True
        assert launches_on_tritons_path(scale, args)
    assert launches_on_tritons_path(scale, args)  # learnt anew
    assert not launches_on_tritons_path(scale, args)

    with knobs.compilation.scope():
        knobs.compilation.instrumentation_mode = "other"
        assert launches_on_tritons_path(scale, args)
    scale[(1,)](*args)
    assert not launches_on_tritons_path(scale, args)

    original = JITFunction.run
    monkeypatch.setattr(JITFunction, "run", lambda self, *a, **k: original(self, *a, **k))
    assert launches_on_tritons_path(scale, args)


def test_hooks_set_to_none_are_prepared_too(scale, device) -> None:
    args = (torch.empty(64), torch.empty(64), 100, 1.5, True)
    for _ in range(2):
        scale[(1,)](*args)
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook = knobs.runtime.launch_exit_hook = None
        assert not launches_on_tritons_path(scale, args)


def test_a_changed_global_is_left_to_triton(scale, package) -> None:
    args = (torch.empty(64), torch.empty(64), 100, 1.5, True)
    for _ in range(2):
        scale[(1,)](*args)
    assert not launches_on_tritons_path(scale, args)
    package.ops.SCALE = type(package.ops.SCALE)(3)
    if any(name == "SCALE" for name, _ in scale.fn.used_global_vals):
        with pytest.raises(RuntimeError, match="SCALE has changed"):
            scale[(1,)](*args)
    else:  # Triton 3.6 does not look at it either
        assert not launches_on_tritons_path(scale, args)


def test_changed_source_is_compiled_anew(scale, device) -> None:
    args = (torch.empty(64), torch.empty(64), 100, 1.5, True)
    scale[(1,)](*args)
    before = scale[(1,)](*args)
    scale.fn._unsafe_update_src(scale.fn.src.replace("* scale", "+ scale"))
    scale.fn.device_caches.clear()
    assert scale[(1,)](*args) is not before


def test_an_optional_tensor_stays_prepared(device, package, give) -> None:
    give(tree("ops.middle", Leaf((0,)), config(64)))
    kernel, x = package.ops.middle, torch.empty(64)
    for bias in (None, x, None, x):
        kernel[(1,)](x, x, n=100, bias=bias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel.fn, "run", lambda *_, **__: pytest.fail("not prepared"))
        for bias in (None, x):
            kernel[(1,)](x, x, n=100, bias=bias)


def test_memory_is_bounded(quick_compiler, scale, device) -> None:
    x = torch.empty(64)
    for n in range(1000, 3100):
        scale[(1,)](x, x, n, 1.5, True)
    launcher = scale._kernelhub_tunable.launcher
    assert len(launcher.prepared.memo) <= 1024
    assert all(not isinstance(part, torch.Tensor) for key in launcher.prepared.memo for part in key)
