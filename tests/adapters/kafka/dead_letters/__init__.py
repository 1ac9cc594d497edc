"""Tests of adapters.kafka.dead_letters."""
