"""A core with no device: times come from a cost model, troubles are made to order.

The tests of the engine run on it, and a space can be rehearsed on it before GPU time is spent.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kernel_builder.tuning.matrix import config_key
from kernel_builder.tuning.runner import Found, Outcome, Station, Task
from kernel_builder.tuning.runners.core import Marks, Poisoned
from kernelhub.formats.tree import Config, DeviceFacts, Literal

DEVICE = DeviceFacts(
    name="Model 132", arch="sm_90", sm_count=132, memory=80 << 30, shared_memory=232448
)


class ModelCore:
    """Tiles over processors: `waves x work per tile / rate`; what disturbs a sample adds to it.

    Args:
        seed: of the disturbance.
        noise: its size relative to the time; the scale of a half-normal distribution of logarithms.
        seconds: that checking or sampling one configuration takes.
        troubles: each {"kind", "config": {...}, "features": {...}}: configurations and points with
            these entries are in trouble. Kinds: a reason of `matrix.REASONS` that a check can
            find, or "die" (the process ends), "hang", "poison" (the device is unusable after).
        device: facts instead of `DEVICE`.
        launches: what `collect` finds, each the fields of a `Found`.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        noise: float = 0.01,
        seconds: float = 0.0,
        troubles: Sequence[Mapping[str, Any]] = (),
        device: Mapping[str, Any] | None = None,
        launches: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self._seed = seed
        self._noise = noise
        self._seconds = seconds
        self._troubles = troubles
        self._launches = launches
        self._device = DEVICE if device is None else DeviceFacts(**device)

    def station(self) -> Station:
        policy: dict[str, Literal] = {"method": "model", "noise": self._noise, "seed": self._seed}
        return Station(device=self._device, tools={"model": "1"}, policy=policy)

    def collect(self, notice: Callable[[Found], None]) -> list[Found]:
        return [Found(**found) for found in self._launches]

    def sources(self) -> dict[str, str]:
        return {found["kernel"]: found["source"] for found in self._launches}

    def counts(self) -> dict[str, int]:
        return {}

    def check(
        self,
        task: Task,
        configs: Sequence[Config],
        base: Config | None,
        marks: Marks,
        *,
        serial: bool,
    ) -> Iterator[Outcome]:
        for config in configs:
            marks.begin(config)
            time.sleep(self._seconds)
            yield self._trouble(task, config)

    def measure(
        self, task: Task, configs: Sequence[Config], rounds: int, marks: Marks
    ) -> Iterator[Outcome]:
        for config in configs:
            marks.begin(config)
            time.sleep(self._seconds)
            digest = hashlib.sha256(f"{self._seed} {task.point} {config_key(config)}".encode())
            noise = random.Random(digest.digest() + os.urandom(4))  # noqa: S311 - model noise
            ms = model_ms(task.features, config)
            samples = tuple(ms * math.exp(abs(noise.gauss(0, self._noise))) for _ in range(rounds))
            yield Outcome(config=config, samples=samples)

    def _trouble(self, task: Task, config: Config) -> Outcome:
        for trouble in self._troubles:
            if not _within(trouble.get("config", {}), config):
                continue
            if not _within(trouble.get("features", {}), task.features):
                continue
            kind = trouble["kind"]
            if kind == "die":
                os.abort()
            if kind == "hang":
                time.sleep(3600)
            if kind == "poison":
                raise Poisoned(Outcome(config=config, reason="fault", detail="poisoned"))
            return Outcome(config=config, reason=kind, detail="made to order")
        return Outcome(config=config)


def _within(wanted: Mapping[str, Any], values: Mapping[str, Literal]) -> bool:
    return all(values.get(name) == value for name, value in wanted.items())


def model_ms(features: Mapping[str, Literal], config: Config) -> float:
    """Milliseconds of a tiled product of sizes M, N and K (1 where absent) on 132 processors."""
    m, n, k = (float(features.get(name) or 1) for name in ("M", "N", "K"))
    bm, bn = float(config.get("BM") or 64), float(config.get("BN") or 64)
    warps = float(config.get("num_warps") or 4)
    waves = math.ceil(math.ceil(m / bm) * math.ceil(n / bn) / 132)
    rate = (0.4 + 0.6 * min(1.0, bm / 128)) * (0.4 + 0.6 * min(1.0, bn / 128))
    rate /= 1.0 + 0.15 * abs(math.log2(warps * 32 * 64 / (bm * bn)))
    rate *= 1.05 if (config.get("num_stages") or 2) == 3 and k > 1000 else 1.0
    return 0.004 + waves * bm * bn * k * 2 / (5e12 * rate) * 1e3
