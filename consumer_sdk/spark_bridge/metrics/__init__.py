"""What Spark reports of a query, as metrics."""
