"""What a pulling query was asked to do: Spark's options and Kafka's."""
