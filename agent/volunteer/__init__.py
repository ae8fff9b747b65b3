"""The volunteer: when this PC may work for others, and how it is given back."""
