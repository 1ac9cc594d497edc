"""Measurements of the SDK against its peers: ``python -m benchmarks`` lists them."""
