"""The probes: what this PC is doing, read without ever stopping the agent."""
