"""Tests of adapters.kafka.client."""
