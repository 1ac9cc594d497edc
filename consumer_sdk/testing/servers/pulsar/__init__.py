"""Apache Pulsar: the server, and what tests do with one."""
