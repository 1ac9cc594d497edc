"""Storm's tuple trees: a record is settled when all branches that were made from it are settled."""
