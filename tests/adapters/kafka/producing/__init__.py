"""Tests of adapters.kafka.producing."""
