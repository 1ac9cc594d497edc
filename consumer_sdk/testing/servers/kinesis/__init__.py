"""Kinesis: two servers that speak it, and what tests do with one."""
