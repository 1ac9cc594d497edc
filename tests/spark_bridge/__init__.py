"""Tests of the Spark bridge."""
