"""Builds: checkpoints of the console's PC become layer libraries, in a process of the exporter."""
