"""Tests of spark_bridge.feed."""
