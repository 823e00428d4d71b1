"""Streams: a durable log whose writers note time, and whose readers know where in time they stand."""
