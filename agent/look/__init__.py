"""What all windows share: colours, icons, small widgets, the thread with the event loop."""
