"""Sources on Windows, through ctypes."""
