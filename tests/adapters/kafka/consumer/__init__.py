"""Tests of adapters.kafka.consumer."""
