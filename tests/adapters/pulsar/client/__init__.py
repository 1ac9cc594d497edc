"""Tests of adapters.pulsar.client."""
