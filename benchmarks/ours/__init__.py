"""The SDK's own contestants, one program each."""
