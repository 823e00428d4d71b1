"""The SQL store of what several processes must agree on: SQLite in a file, PostgreSQL on a server.

`store` opens it and runs transactions, `schema` is what it holds, `migrations` lead there from every
earlier version, and `leases` say who does what at the moment.
"""
