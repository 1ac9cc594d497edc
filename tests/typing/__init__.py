"""What type checkers make of users' programs; the files here are read, not run."""
