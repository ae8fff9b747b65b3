"""One contiguous layer range, computed in a child process."""
