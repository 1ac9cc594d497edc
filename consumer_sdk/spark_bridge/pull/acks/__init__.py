"""What Spark has done, made durable outside of Spark."""
