"""Plans made by hand, and who talks to whom."""
