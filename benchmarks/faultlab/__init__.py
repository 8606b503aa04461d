"""Loading, locking and publishing while things go wrong, each run in a process of its own.

`cases` says what is tried, `client` is what runs (and may be killed), `lab` puts a Hub with faults
beside it and judges what came out. The tests run a few cases, `benchmarks.faults` runs hundreds.
"""
