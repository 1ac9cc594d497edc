"""What is asked of Kinesis, and what its answers mean."""
