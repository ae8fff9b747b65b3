"""Checkpoint in, layer library out."""
