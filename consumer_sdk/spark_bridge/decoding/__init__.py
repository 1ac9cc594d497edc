"""Values decoded by a schema, or rejected with a reason: JSON, Avro and Protobuf."""
