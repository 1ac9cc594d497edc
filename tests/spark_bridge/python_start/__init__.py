"""Tests of `consumer_sdk.spark_bridge.python_start`."""
