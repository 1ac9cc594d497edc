"""``python -m benchmarks kinesis``: the adapter beside what others read Kinesis with."""
