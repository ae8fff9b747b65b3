"""Traces of answers for OpenTelemetry, where somebody collects them."""
