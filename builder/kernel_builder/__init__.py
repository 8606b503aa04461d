"""What kernel authors run: check, build, tune and publish kernels.

Imports kernelhub, never the other way round.
"""
