"""The admin routes under /admin/v1, used by the command line and the windows."""
