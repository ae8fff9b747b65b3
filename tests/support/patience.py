"""How long a test waits for what has to come. Nothing ever takes as long, unless it does not come at all."""

PATIENCE_S = 60.0
"""A machine that runs other tests beside this one may let a process wait for many seconds."""
