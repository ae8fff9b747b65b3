"""The chat's windows: clients of the API and of the file with the chats."""
