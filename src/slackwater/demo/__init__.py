"""The demo of `make demo`: a live pipeline on Spark; and a shorter one on the tracker, without Spark."""
