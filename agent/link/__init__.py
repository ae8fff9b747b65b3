"""Frames, authenticated channels, identity and enrolment."""
