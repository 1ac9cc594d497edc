"""Tests of the Pulsar adapter, on a real Pulsar."""
