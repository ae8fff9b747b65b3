"""The first page: the fleet at a glance."""
