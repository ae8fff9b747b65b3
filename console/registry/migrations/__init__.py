"""Schema upgrades of the registry, run by `console.registry.database` when it opens one."""
