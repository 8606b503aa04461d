"""The embedded Hub (extra `serve`): a small Hub for tests, demonstrations and closed networks."""
