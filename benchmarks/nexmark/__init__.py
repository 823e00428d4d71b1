"""Nexmark: an auction site as a stream of persons, auctions and bids, and the queries over it."""
