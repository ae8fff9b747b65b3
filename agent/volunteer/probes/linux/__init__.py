"""Sources on Linux: D-Bus services, X11, Wayland, sysfs, procfs."""
