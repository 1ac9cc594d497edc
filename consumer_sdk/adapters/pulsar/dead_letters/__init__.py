"""Dead letters as messages of a Pulsar topic."""
