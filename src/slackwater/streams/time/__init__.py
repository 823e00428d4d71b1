"""Event time of a stream: times that writers note, marks, and time windows of readers."""
