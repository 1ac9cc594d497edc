"""The main job: a year of flights through Kafka, a consumer that is killed, and Spark."""
