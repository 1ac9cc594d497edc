"""Tests of runtime.dispatch."""
