"""The employee PC's side: it serves a stage while its owner is away."""
