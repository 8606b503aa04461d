"""Runners: a worker process per device, around a core that measures or models."""
