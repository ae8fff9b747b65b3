"""The owner's view of the agent: tray icon, menu, window. A client of the service, which owns everything it shows."""
