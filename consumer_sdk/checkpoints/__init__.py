"""How far a partition was processed: the value, and its forms as text and bytes."""
