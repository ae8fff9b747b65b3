"""Updates of this agent: who vouches for a release, how it is put beside the running one, tried, kept or taken back."""
