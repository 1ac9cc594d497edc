"""Tests of adapters.pulsar.dead_letters."""
