"""Tests of stores.zookeeper."""
