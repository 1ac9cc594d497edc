"""What the SDK is measured against, one program each."""
