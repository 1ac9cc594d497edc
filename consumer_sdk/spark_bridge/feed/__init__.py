"""The feed: a directory of segments that consumers write, and Spark reads."""
