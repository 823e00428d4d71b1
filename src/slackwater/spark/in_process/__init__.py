"""Pipelines that run in this process, without a JVM, for tests: the same operators on scripted rows."""
