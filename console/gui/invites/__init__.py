"""Invites: how PCs come into the fleet."""
