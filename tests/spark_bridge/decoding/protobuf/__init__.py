"""Tests of spark_bridge.decoding.protobuf."""
