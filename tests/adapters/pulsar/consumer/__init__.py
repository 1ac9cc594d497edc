"""Tests of adapters.pulsar.consumer."""
