"""Tests of adapters.kinesis.service."""
