"""What is maximised, and how its gradient is estimated."""
