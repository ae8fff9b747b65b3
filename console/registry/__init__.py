"""What the fleet knows for certain: devices, invites, certificate authority, keys, audit."""
