"""Are two results of a JAX program the same, within a tolerance? Compared on their device.

A result may hold a hundred million numbers, and a point has a dozen configurations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kernel_builder.tuning.compare import verdict


class _Facts(NamedTuple):
    """Whether all is alike that has to be, and the largest error and magnitude of the rest."""

    alike: Any
    error: Any
    scale: Any


class Agreement:
    """Compares results of one shape, by the rule of `compare.difference`.

    Args:
        jax: the module.
        shapes: of a result.
    """

    def __init__(self, jax: Any, shapes: Any) -> None:
        self._jax = jax
        self._program = jax.jit(lambda a, b: jax.tree.map(self._facts, a, b)).lower(shapes, shapes)
        self._program = self._program.compile()

    def difference(self, result: Any, expected: Any, tolerance: float) -> str | None:
        """What differs, None if nothing does."""
        found = self._jax.device_get(self._program(result, expected))
        tree = self._jax.tree_util
        for path, facts in tree.tree_leaves_with_path(found, is_leaf=_is_facts):
            name = tree.keystr(path) or "result"
            if not facts.alike:
                return f"{name}: values differ, or are not finite where they should be"
            text = verdict(float(facts.error), float(facts.scale), tolerance)
            if text is not None:
                return f"{name}: {text}"
        return None

    def _facts(self, a: Any, b: Any) -> _Facts:
        jnp = self._jax.numpy
        if a.size == 0 or not jnp.issubdtype(a.dtype, jnp.floating):
            return _Facts(jnp.array_equal(a, b), jnp.float32(0), jnp.float32(0))
        wide = jnp.promote_types(a.dtype, jnp.float32)
        a, b = a.astype(wide), b.astype(wide)
        finite = jnp.isfinite(b)
        alike = jnp.array_equal(jnp.isfinite(a), finite)
        error = jnp.max(jnp.where(finite, jnp.abs(a - b), 0))
        return _Facts(alike, error, jnp.max(jnp.where(finite, jnp.abs(b), 0)))


def _is_facts(value: Any) -> bool:
    return isinstance(value, _Facts)
