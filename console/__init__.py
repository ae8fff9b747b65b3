"""The admin's side: registry, planner, pipelines and API. The service runs headless."""
