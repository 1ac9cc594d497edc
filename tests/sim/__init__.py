"""The whole consumer, simulated: every seed is a group's life with faults at every seam.

``python -m tests.sim --seed N --verbose`` replays one.
"""
