"""From a fresh machine to a running Fallow: environment, demo, checks and packages."""
