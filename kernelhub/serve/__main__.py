"""`python -m kernelhub.serve`: the `kernelhub serve` command."""

import sys

from kernelhub.cli import group, run

sys.exit(run(group, ["serve", *sys.argv[1:]]))
