"""People and API keys: who may do what, and how much."""
