"""Tests of adapters.kinesis.dead_letters."""
