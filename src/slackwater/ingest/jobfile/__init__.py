"""Job files: keys, values, references and secondary inputs."""
