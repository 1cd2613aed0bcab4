"""Measurements of promises: `python -m benchmarks.NAME` prints a table and exits 1 on a miss."""
