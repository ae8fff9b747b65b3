"""The page of answers: where the time of slow ones went."""
