"""The checkpoint stores."""
