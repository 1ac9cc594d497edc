"""Tests of spark_bridge.pull.acks."""
