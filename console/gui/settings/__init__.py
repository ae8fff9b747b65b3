"""What the administrator wants of volunteering PCs, and facts of the service and its authority."""
