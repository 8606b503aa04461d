"""From the arguments of a launch to the configuration that runs. Imports only the stdlib."""
