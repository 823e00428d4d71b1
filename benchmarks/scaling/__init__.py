"""What a micro-batch costs on a cluster: measurements, a model fitted to them, and its predictions."""
