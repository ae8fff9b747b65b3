"""Guesses of the next tokens that the model then verifies: where they come from and how many are worth it."""
