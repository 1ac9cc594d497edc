"""Tests of adapters.kinesis.consumer."""
