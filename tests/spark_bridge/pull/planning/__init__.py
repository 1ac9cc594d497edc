"""Tests of spark_bridge.pull.planning."""
