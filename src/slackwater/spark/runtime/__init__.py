"""What runs in a worker: one bucket of an operator, its inputs and its state."""
