"""The aiokafka client: its options, its errors, what is asked of brokers beside it."""
