"""Load tests of deployed models, as their clients see them."""
