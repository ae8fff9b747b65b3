"""What the console counts, as Prometheus reads it: names, collectors, the text."""
