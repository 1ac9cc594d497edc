"""Tests of the Kinesis adapter: on a fake, on kinesis-local and on kinesalite."""
