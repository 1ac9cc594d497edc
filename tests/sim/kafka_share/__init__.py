"""The simulation of Kafka's share groups: our members, sessions and locks against the model of a cluster."""
