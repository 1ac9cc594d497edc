"""Record batches as messages."""
