"""One module per schema version, the newest last."""
