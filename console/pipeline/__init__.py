"""Streams, scheduler and coordinator: from a prompt to sampled tokens."""
