"""Tuning for a TPU that is not there: libtpu's compiler, and a model of the time."""
