"""Tests of spark_bridge.pull.options."""
