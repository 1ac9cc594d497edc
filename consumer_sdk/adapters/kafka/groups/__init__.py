"""Membership of a consumer group: its protocols as state machines without I/O, and the tasks that run them."""
