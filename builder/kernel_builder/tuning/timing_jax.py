"""Device time of one launch of a JAX kernel, by repeating it inside one dispatch.

Each launch is given a result of the one before in the place of an argument of the same shape, so
that the compiler can leave none out, nor join two. Where that is not enough, as the compiled
program shows, an element of an argument is written anew as well, in a way that has to wait for all
results; that takes a small kernel of its own, some 2 us. Launches follow each other as straight
code, which XLA hands to the GPU as one graph, and such a turn is the body of a loop whose length is
known when it is compiled, so that nothing waits for the host: a loop of single launches would add
what a turn costs, 7 to 9 us on an H200. How many launches a program holds follows from the bytes of
their arrays, which give a least time. Programs are dispatched one behind the other and waited for
together. The lowest sample counts (see `summary.lowest`); all are of one program, since another
would have to be compiled.

Launches find what the ones before have left in the cache ("warm").
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernel_builder.tuning.timing import Timed
from kernelhub.errors import TuningError

_IN_A_TURN = 10  # launches
_PROGRAM_MS = 0.5  # that a program takes at least: long beside what dispatching it costs
_LEAST_LAUNCHES, _MOST_LAUNCHES = 2, 250
_LEAST_MS = 2e-3  # that a launch takes, however small
_BYTES_PER_MS = 4e9  # of the fastest memory there is
_TARGET_MS = 4.0  # of one sample: long beside the jitter of a dispatch
_MOST_PROGRAMS = 48


@dataclass(frozen=True, slots=True)
class Chain:
    """A compiled function of arrays that launches `launches` times; calling it returns the result
    of the first launch."""

    program: Any
    launches: int

    def __call__(self, *arrays: Any) -> Any:
        return self.program(*arrays)[0]


class JaxTimer:
    """Samples launches on the device that holds their arrays. Used from one thread.

    Args:
        jax: the module.
    """

    method = "jax-chains"

    def __init__(self, jax: Any) -> None:
        self._jax = jax

    def chain(self, run: Callable[..., Any], arrays: Sequence[Any]) -> Chain:
        """A program that can be sampled.

        Raises whatever tracing or compiling raises. May be called from any thread.

        Args:
            run: the launch, of its arrays.

        Raises:
            TuningError: the compiler leaves launches out.
        """
        launch = self._jax.jit(run)  # traced once, however often it is called below
        results = self._jax.tree.leaves(self._jax.eval_shape(launch, *arrays))
        turns, in_a_turn = _split(arrays, results)
        fed = _fed(arrays, results)
        never = self._jax.numpy.zeros((), bool)
        for touched in (False, True) if fed else (True,):
            program = self._program(launch, fed, (turns, in_a_turn), touched=touched)
            lowered = self._jax.jit(program).lower(never, *arrays)
            compiled = lowered.compile()
            if _whole(lowered.as_text(), compiled.as_text(), 1 + in_a_turn):
                return Chain(partial(compiled, never), 1 + turns * in_a_turn)
        raise TuningError("the compiler leaves out launches whose time was to be taken")

    def _program(
        self,
        launch: Callable[..., Any],
        fed: Mapping[int, int],
        turns: tuple[int, int],
        *,
        touched: bool,
    ) -> Callable[..., Any]:
        """Launches one after the other, as a function of a flag that is never set and the arrays.

        Args:
            fed: see `_fed`.
            turns: of the loop, and launches in one.
            touched: an element of the first argument waits for all results.
        """
        jax, jnp = self._jax, self._jax.numpy
        places = sorted({*fed, *((0,) if touched else ())})

        def taken(never: Any, arrays: Sequence[Any], result: Any) -> list[Any]:
            """What changes from one launch to the next."""
            leaves = jax.tree.leaves(result)
            after = {
                place: leaves[fed[place]] if place in fed else arrays[place] for place in places
            }
            if touched:
                full = [leaf for leaf in leaves if leaf.size]
                seen = sum(leaf[(0,) * leaf.ndim].astype(jnp.float32) for leaf in full)
                change = jnp.where(never, seen, 0.0).astype(after[0].dtype)
                after[0] = after[0].at[(0,) * after[0].ndim].add(change)
            return [after[place] for place in places]

        def program(never: Any, *given: Any) -> Any:
            def turn(_: Any, state: list[Any]) -> list[Any]:
                for _ in range(turns[1]):
                    arrays = list(given)
                    for place, value in zip(places, state, strict=True):
                        arrays[place] = value
                    state = taken(never, arrays, launch(*arrays))
                return state

            first = launch(*given)
            start = taken(never, given, first)
            return first, jax.lax.fori_loop(0, turns[0], turn, start)

        return program

    def capture(self, chain: Chain, arrays: Sequence[Any]) -> Timed:
        """A program that has run before, ready to be sampled."""
        one = self._ms(chain, arrays, 1)
        programs = int(max(1, min(_MOST_PROGRAMS, _TARGET_MS / max(one, 1e-3))))
        return Timed(graph=(chain, tuple(arrays), programs), launches=programs * chain.launches)

    def sample(self, timed: Timed) -> float:
        """Milliseconds of one launch."""
        chain, arrays, programs = timed.graph
        return self._ms(chain, arrays, programs) / timed.launches

    def _ms(self, chain: Chain, arrays: Sequence[Any], programs: int) -> float:
        start = time.perf_counter()
        for _ in range(programs):
            result = chain.program(*arrays)
        self._jax.block_until_ready(result)
        return (time.perf_counter() - start) * 1e3


def _fed(arrays: Sequence[Any], results: Sequence[Any]) -> dict[int, int]:
    """Places of arguments, and of results of the same shape and type that stand in for them."""
    found: dict[int, int] = {}
    for place, result in enumerate(results):
        like = (tuple(result.shape), result.dtype)
        for index, array in enumerate(arrays):
            if index not in found and (tuple(array.shape), array.dtype) == like:
                found[index] = place
                break
    return found


def _whole(lowered: str, compiled: str, times: int) -> bool:
    """Whether a compiled program calls each kernel as often as it was told: `times` what one launch
    calls, which stands once in the program as it was before. A kernel that goes by another name
    after compiling, so that not one call of it is there, says nothing."""
    called = Counter(re.findall(r"custom_call @([^\s(]+)\(", lowered))
    return all(
        compiled.count(f'custom_call_target="{target}"') in (0, times * count)
        for target, count in called.items()
    )


def _split(arrays: Sequence[Any], results: Sequence[Any]) -> tuple[int, int]:
    """Turns of the loop, and launches in a turn."""
    moved = sum(math.prod(x.shape) * x.dtype.itemsize for x in (*arrays, *results))
    wanted = math.ceil(_PROGRAM_MS / max(_LEAST_MS, moved / _BYTES_PER_MS))
    launches = max(_LEAST_LAUNCHES, min(_MOST_LAUNCHES, wanted))
    in_a_turn = min(launches, _IN_A_TURN)
    return math.ceil(launches / in_a_turn), in_a_turn
