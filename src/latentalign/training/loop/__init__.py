"""What happens in a training step, and after it."""
