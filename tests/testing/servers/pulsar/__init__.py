"""Tests of testing.servers.pulsar."""
