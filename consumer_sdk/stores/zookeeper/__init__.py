"""Checkpoints and leases in ZooKeeper."""
