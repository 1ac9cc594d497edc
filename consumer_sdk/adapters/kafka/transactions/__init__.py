"""Transactions: outputs of handlers, committed with the positions of their records."""
