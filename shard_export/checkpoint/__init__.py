"""Lazy access to the tensors of a checkpoint."""
