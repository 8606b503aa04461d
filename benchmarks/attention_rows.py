"""What `benchmarks.attention` measures: rows with raw samples, one a shape."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks import gpu_timing
from benchmarks.attention_shapes import Shape

Row = dict[str, Any]
Call = Callable[[], Any]
LONG_MS = 2.0  # contenders above it get fewer replays
COPY_BYTES = 4 << 30
PRODUCT = 8192


def sdpa(backend: SDPBackend, *qkv: torch.Tensor, **options: Any) -> torch.Tensor:
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*qkv, **options)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The kernel under test and its contenders on one device.

    Attributes:
        kernel: as `get_kernel` returns it.
        device: "cuda", or "cpu" in a rehearsal, where times mean nothing.
        peers: name to SDPA backend.
    """

    kernel: ModuleType
    device: str
    peers: Mapping[str, SDPBackend]

    def forward(
        self,
        shapes: Iterable[Shape],
        causal: bool,
        end_to_end: bool,
        dtype: torch.dtype = torch.bfloat16,
    ) -> Iterator[Row]:
        """(batch, heads, length, dim) shapes, as many key heads as query heads."""
        for shape in shapes:
            qkv = self._inputs(shape, shape, shape, dtype=dtype)
            calls = {
                name: partial(sdpa, backend, *qkv, is_causal=causal)
                for name, backend in self.peers.items()
            }
            attend = self.kernel.scaled_dot_product_attention
            calls["ours"] = partial(attend, *qkv, is_causal=causal)
            torch.testing.assert_close(calls["ours"](), calls["cudnn"](), atol=5e-2, rtol=2e-2)
            row: Row = {"shape": shape, "causal": causal, **self._device_ms(calls)}
            if end_to_end:
                row["end_to_end_ms"] = self._end_to_end_ms(calls)
            yield row

    def training(self, shapes: Iterable[Shape], causal: bool) -> Iterator[Row]:
        """Forward and backward of the same shapes."""
        for shape in shapes:
            qkv = self._inputs(shape, shape, shape, grad=True)
            upstream = torch.randn_like(qkv[0])
            step = partial(_step, qkv, upstream, causal)
            calls = {
                name: partial(step, partial(sdpa, backend)) for name, backend in self.peers.items()
            }
            calls["ours"] = partial(step, self.kernel.scaled_dot_product_attention)
            for ours, peer in zip(calls["ours"](), calls["cudnn"](), strict=True):
                error = (ours - peer).norm() / peer.norm()
                assert error < 5e-2, f"gradients of {shape} differ by {error}"
            yield {"shape": shape, "causal": causal, **self._device_ms(calls, 10, 2)}

    def decoding(self, points: Iterable[tuple[int, int]]) -> Iterator[Row]:
        """(batch, keys) of one query of 32 heads on 4 key heads of dim 128."""
        backends = {**self.peers, "efficient": SDPBackend.EFFICIENT_ATTENTION}
        for batch, keys in points:
            q, k, v = self._inputs(
                (batch, 32, 1, 128), (batch, 4, keys, 128), (batch, 4, keys, 128)
            )
            attend = partial(self.kernel.scaled_dot_product_attention, q, k, v, enable_gqa=True)
            calls: dict[str, Call] = {"ours": attend}
            for name, backend in backends.items():
                call = partial(sdpa, backend, q, k, v, enable_gqa=True)
                try:
                    expected = call()
                except RuntimeError:  # this backend does not take grouped heads here
                    continue
                torch.testing.assert_close(attend(), expected, atol=5e-2, rtol=2e-2)
                calls[name] = call
            yield {
                "batch": batch,
                "keys": keys,
                "bytes": 2 * k.numel() * k.element_size(),
                **self._device_ms(calls, 15, 3),
            }

    def ceilings(self) -> Iterator[Row]:
        """A bf16 matrix product and a copy: what this card does at most."""
        small = self.device == "cpu"
        size, count = (64, 1 << 10) if small else (PRODUCT, COPY_BYTES // 2)
        a = torch.randn(size, size, device=self.device, dtype=torch.bfloat16)
        source = torch.randn(count, device=self.device, dtype=torch.bfloat16)
        target = torch.empty_like(source)
        calls: dict[str, Call] = {"product": partial(torch.mm, a, a)}
        yield {"operations": 2 * size**3, **self._device_ms(calls, 10, 2)}
        # A kernel: as a node of a graph, a memory copy takes half as long again.
        calls = {"copy": partial(torch.mul, source, 1.0, out=target)}
        yield {"bytes": 2 * source.numel() * 2, **self._device_ms(calls, 10, 2)}

    def _inputs(
        self, *shapes: Shape, grad: bool = False, dtype: torch.dtype = torch.bfloat16
    ) -> list[torch.Tensor]:
        torch.manual_seed(42)
        return [
            torch.randn(shape, device=self.device, dtype=dtype, requires_grad=grad)
            for shape in shapes
        ]

    def _device_ms(self, calls: Mapping[str, Call], replays: int = 30, discard: int = 5) -> Row:
        """{"device_ms": samples by contender}, and where one's graph could not be captured,
        {"failed": why}: the others are measured without it."""
        if self.device == "cpu":
            return {"device_ms": {name: _on_host(call) for name, call in calls.items()}}
        captured = {name: _capture(call) for name, call in calls.items()}
        graphs = {name: graph for name, graph in captured.items() if not isinstance(graph, str)}
        failed = {name: why for name, why in captured.items() if isinstance(why, str)}
        if gpu_timing.longest(graphs) > LONG_MS:
            replays, discard = math.ceil(replays / 4), 1
        row: Row = {"device_ms": gpu_timing.replay(graphs, replays, discard)}
        return row | ({"failed": failed} if failed else {})

    def _end_to_end_ms(self, calls: Mapping[str, Call]) -> dict[str, list[float]]:
        if self.device == "cpu":
            return {name: _on_host(call) for name, call in calls.items()}
        return gpu_timing.end_to_end_ms(calls)


def _step(
    qkv: list[torch.Tensor], upstream: torch.Tensor, causal: bool, attend: Callable[..., Any]
) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(attend(*qkv, is_causal=causal), qkv, upstream)


def _capture(call: Call) -> torch.cuda.CUDAGraph | str:
    """The graph, or why there is none."""
    try:
        return gpu_timing.capture(call)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"


def _on_host(call: Call) -> list[float]:
    start = time.perf_counter()
    call()
    return [1e3 * (time.perf_counter() - start)]
