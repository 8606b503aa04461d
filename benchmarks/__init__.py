"""Every figure that the documentation quotes has its script here: `python -m benchmarks.<name>`."""
