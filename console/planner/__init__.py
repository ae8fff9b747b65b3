"""Facts in, plan out, with the reasons. Pure."""
