"""What the runtime keeps for each partition that it holds, from assignment to revocation."""
