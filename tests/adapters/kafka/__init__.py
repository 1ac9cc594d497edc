"""Tests of the Kafka adapter, on a real Kafka."""
