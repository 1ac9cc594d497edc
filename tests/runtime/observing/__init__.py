"""Tests of runtime.observing."""
