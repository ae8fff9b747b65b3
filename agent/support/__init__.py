"""Support bundles: one file that says how a program and its PC are, without a secret."""
