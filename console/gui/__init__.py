"""The admin's windows: clients of the service."""
