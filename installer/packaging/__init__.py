"""From this tree to what people install: bundles, their licences and parts lists, Debian packages, an AppImage."""
