"""Tests of runtime.partitions."""
