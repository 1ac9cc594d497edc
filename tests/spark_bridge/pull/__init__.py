"""Tests of the pull source."""
