"""Storm's tuple trees: a record is settled when all that was made from it is."""
