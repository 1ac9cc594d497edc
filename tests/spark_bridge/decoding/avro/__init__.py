"""Tests of spark_bridge.decoding.avro."""
