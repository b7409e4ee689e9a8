"""Measured comparisons: `python -m benchmarks.NAME --json` prints one JSON object a line."""
