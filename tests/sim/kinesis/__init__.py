"""The Kinesis adapter, simulated: groups that share a stream whose shards split and merge.

``python -m tests.sim.kinesis --seed N --trace`` replays one.
"""
