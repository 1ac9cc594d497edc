"""Tests of ``python -m benchmarks trackers``."""
