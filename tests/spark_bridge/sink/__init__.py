"""The sink: `df.write` and `df.writeStream` into Kafka and Pulsar."""
