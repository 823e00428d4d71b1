"""Streams: a durable, partitioned log whose writers note time and whose readers know where in time they stand."""
