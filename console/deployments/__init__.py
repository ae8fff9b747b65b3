"""Which models are wanted, how one is brought up, and how it goes on when a PC leaves."""
