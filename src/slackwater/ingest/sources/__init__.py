"""Sources: databases, files and HTTP APIs."""
