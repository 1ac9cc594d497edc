"""Tests of the benchmarks: that they run and compare what they say, never how fast."""
