"""What runs, in which order, and where."""
