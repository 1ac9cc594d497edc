"""Who is handed which record next: lanes and workers of `run`, the queue of a pull."""
