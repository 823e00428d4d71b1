"""The ledger: runs, high watermarks and intents in the metadata store."""
