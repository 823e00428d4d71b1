"""Event time of a stream: notes of writers, marks and time windows of readers."""
