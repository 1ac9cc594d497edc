"""Tests of the whole, on real servers."""
