"""Attention without the score matrix in memory, in Pallas."""
