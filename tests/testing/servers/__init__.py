"""Tests of the real servers."""
