"""Tests of adapters.kafka.commits."""
