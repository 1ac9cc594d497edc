"""``consumer-sdk doctor``: what would keep a consumer from running, asked one thing after another."""
