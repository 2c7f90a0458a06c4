"""Training: loss, learning-rate schedule, the loop itself, and the checkpoints it leaves."""
