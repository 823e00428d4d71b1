"""The durable log: catalog, data files, writers, transactions and readers."""
