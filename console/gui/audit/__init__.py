"""What was done, by whom, from where: the audit log."""
