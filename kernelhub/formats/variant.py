"""Names of noarch variants: the folders below `build/` of a published kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Backend = Literal["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]
Framework = Literal["torch", "jax"]

BACKENDS: tuple[Backend, ...] = get_args(Backend)
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)

UNIVERSAL = "universal"
_FOLDER_BACKENDS = frozenset({*BACKENDS, UNIVERSAL, "npu"})


@dataclass(frozen=True, slots=True)
class VariantName:
    """`<framework>-<backend>`, such as `torch-cuda`.

    `backend` is one of BACKENDS, or `universal` (old builds that run on each), or `npu`: HF's
    loader looks for CANN builds under that name while HF's builder writes `torch-cann`.
    """

    framework: Framework
    backend: str

    @classmethod
    def parse(cls, text: str) -> VariantName | None:
        """The variant that a folder is called after, or None for every other folder.

        HF's client takes any `torch-<text>` for a noarch variant; here `torch-cuda.bak` is none.
        """
        framework, _, backend = text.partition("-")
        if framework not in FRAMEWORKS or backend not in _FOLDER_BACKENDS:
            return None
        return cls(framework, backend)

    def serves(self, backend: str) -> bool:
        """Whether a machine with this backend (one of BACKENDS) may run the variant."""
        return self.backend in (backend, UNIVERSAL) or (self.backend, backend) == ("npu", "cann")

    def __str__(self) -> str:
        return f"{self.framework}-{self.backend}"
