"""Dead letters as records of a Kinesis stream."""
