"""The build job: trace, compress, check, publish, one layer at a time."""
