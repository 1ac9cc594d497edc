"""Tests of runtime.starts."""
