"""Checks of an installation, a metadata store and checkpoints, each finding with its fix."""
