"""Interpret mode is compiled by XLA for the CPU: without optimisations that takes half the time."""

import jax

if jax.default_backend() == "cpu":
    jax.config.update("jax_disable_most_optimizations", True)
