"""The running agent's local control socket: what the tray and the command line are clients of."""
