"""What a query does and how far behind it is."""
