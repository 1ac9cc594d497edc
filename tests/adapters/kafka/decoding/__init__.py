"""Tests of adapters.kafka.decoding."""
