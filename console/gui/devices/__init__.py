"""The PCs of the fleet: a table that follows them, what can be done to them, and one of them in detail."""
