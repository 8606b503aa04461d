"""Device time of one launch of a JAX kernel, by repeating it inside one dispatch.

The launch is the body of a loop of which the compiler may skip nothing: every turn depends on the
result of the turn before through an optimization barrier, which costs nothing on the device. Loops
are dispatched one behind the other and waited for together, so the host's work is hidden behind the
device's as long as a loop takes longer than its dispatch.

Launches follow each other on the same arguments: small ones come from the cache ("warm").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from kernel_builder.tuning.timing import Timed

_LAUNCHES = 8  # in one loop
_TARGET_MS = 4.0  # of one sample: long beside the jitter of a dispatch
_MOST_LOOPS = 48


class JaxTimer:
    """Samples launches on the device that holds their arrays. Used from one thread.

    Args:
        jax: the module.
    """

    method = "jax-loop"

    def __init__(self, jax: Any) -> None:
        self._jax = jax

    def loop(self, run: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """A compiled function of the arrays that launches several times and returns one result.

        Raises whatever tracing or compiling raises. May be called from any thread.

        Args:
            run: the launch, of its arrays.
        """
        jax = self._jax

        def repeated(*given: Any) -> Any:
            def turn(_: Any, before: Any) -> Any:
                inputs, _ = jax.lax.optimization_barrier((given, before))
                return run(*inputs)

            shapes = jax.eval_shape(run, *given)
            start = jax.tree.map(lambda s: jax.numpy.zeros(s.shape, s.dtype), shapes)
            return jax.lax.fori_loop(0, _LAUNCHES, turn, start)

        return jax.jit(repeated).lower(*arrays).compile()

    def capture(self, loop: Any, arrays: Sequence[Any]) -> Timed:
        """A loop that has run before, ready to be sampled."""
        one = self._ms(loop, arrays, 1)
        loops = int(max(1, min(_MOST_LOOPS, _TARGET_MS / max(one, 1e-3))))
        return Timed(graph=(loop, tuple(arrays), loops), launches=loops * _LAUNCHES)

    def sample(self, timed: Timed) -> float:
        """Milliseconds of one launch."""
        loop, arrays, loops = timed.graph
        return self._ms(loop, arrays, loops) / timed.launches

    def _ms(self, loop: Any, arrays: Sequence[Any], loops: int) -> float:
        start = time.perf_counter()
        results = [loop(*arrays) for _ in range(loops)]
        self._jax.block_until_ready(results[-1])
        return (time.perf_counter() - start) * 1e3
