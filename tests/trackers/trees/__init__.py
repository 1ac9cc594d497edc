"""Tests of trackers.trees."""
