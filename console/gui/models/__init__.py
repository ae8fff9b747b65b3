"""The page of the models: libraries, builds, deployments, deliveries."""
