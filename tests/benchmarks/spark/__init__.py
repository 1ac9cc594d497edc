"""Tests of `benchmarks.spark`."""
