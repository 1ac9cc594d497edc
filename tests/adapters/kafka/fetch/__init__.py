"""Tests of adapters.kafka.fetch."""
