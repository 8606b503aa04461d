"""Functions that choose between algorithms."""

from kernelhub import tunable

calls = []


def split(x, block):
    return ("split", block)


def fused(x, block):
    return ("fused", block)


class OutOfResources(RuntimeError):
    """Called like Triton's, which this module does not import."""


@tunable(
    space={"block": (64, 128, 256), "algorithm": {"split": split, "fused": fused}},
    conditions=[lambda config: config["algorithm"] == "split" or config["block"] > 64],
    default={"block": 128, "algorithm": "fused"},
    key=["n"],
)
def scan(x, n, *, reverse=False, block, algorithm):
    if block == 256 and n > 10_000:
        raise OutOfResources("block of 256")
    return algorithm(x, block)


@tunable(
    configs=[{"tile": 8}, {"tile": 16}],
    default=lambda arguments: {"tile": 16 if arguments["x"].shape[0] > 100 else 8},
    features=lambda arguments: {"area": arguments["x"].shape[0] * arguments["x"].shape[1]},
)
def area(x, *, tile):
    return tile
