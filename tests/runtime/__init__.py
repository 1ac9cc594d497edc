"""Tests of the runtime, on virtual time and the in-memory broker."""
