"""`fallow-agent doctor`: what is right and wrong with this PC, its network and its files, and what to do about it."""
