"""Tests of testing.servers.kinesis."""
