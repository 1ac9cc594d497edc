"""Seeded lives of Kafka groups: the member state machines against the model of the group coordinator."""
