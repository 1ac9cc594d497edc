"""A folder for ``PYTHONPATH``: what Spark's Python processes run before anything else."""
