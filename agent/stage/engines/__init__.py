"""Ways to run a stage graph, behind one interface."""
