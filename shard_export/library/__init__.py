"""The layer library on disk: format, hashing, verification, publication and stage graphs. No torch."""
