"""Logs: what a line says, what it never says, where it goes, and how much of it, also while a program runs."""
