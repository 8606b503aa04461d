"""The seam to a language: find what can be tuned, look at a call, launch or compile it.

An `Adapter` finds the tunables of a loaded package; a `Tunable` is one of them. Dispatch and the
tuner know nothing else of Triton, Pallas or any other language. A new language is one module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from kernelhub.formats.tree import Config, DeviceFacts, Literal

from .launch import Launch

if TYPE_CHECKING:
    from .dispatcher import BoundTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One live call of a tunable.

    Attributes:
        args: positional arguments as the caller gave them.
        kwargs: keyword arguments as the caller gave them, without the grid.
        grid: a Triton launch's grid (a tuple, or a callable of the arguments), else None.
        arguments: both by parameter name, defaults filled in, without what a configuration sets.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grid: Any = None
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a compiled configuration takes of the device. None: the compiler does not say.

    Attributes:
        shared_memory: bytes for one block (VMEM per core on a TPU).
        threads: of one block.
        registers: for one thread.
        spills: bytes of registers that went to memory, for one thread.
        tensor_memory: columns of tensor memory (sm_100 and up).
    """

    shared_memory: int | None = None
    threads: int | None = None
    registers: int | None = None
    spills: int | None = None
    tensor_memory: int | None = None

    def fits(self, device: DeviceFacts) -> bool:
        """Whether one block fits the device, as far as is known."""
        return self.shared_memory is None or self.shared_memory <= device.shared_memory


class Tunable(Protocol):
    """One kernel or function whose configuration can be chosen.

    Every method may run the author's own functions (hooks, pruning, defaults), whose errors pass.

    Attributes:
        name: dotted name below its package ("attention.attention_fwd").
        language: "triton", or "python" for `@kernelhub.tunable`.
        parameters: names that a configuration may set.
    """

    name: str
    language: str
    parameters: tuple[str, ...]

    def give(self, load: Callable[[], Sequence[BoundTree]]) -> None:
        """Let these trees choose from now on. `load` is called when a call first needs them."""

    def candidates(self, call: Call) -> tuple[Config, ...]:
        """The configurations that the author admits for this call, after the author's pruning.

        A space is enumerated here; `Space` objects of `@kernelhub.tunable` can also be searched.

        Raises:
            DispatchError: the author's pruning leaves nothing.
        """

    def default(self, call: Call) -> Config:
        """The author's default for this call: the declared one, else the first candidate.

        Raises:
            DispatchError: the author's pruning leaves nothing.
        """

    def admits(self, call: Call, config: Config) -> bool:
        """Whether the author's own rules allow the configuration for this call.

        Rules are those that say what may run (`early_config_prune`, conditions), not those that
        guess what is fast.
        """

    def features(self, call: Call) -> Mapping[str, Literal]:
        """All values that a decision tree may test, by feature name."""

    def facts(self, call: Call) -> Launch:
        """The call as data."""

    def device(self, call: Call) -> DeviceFacts | None:
        """The device that this call will run on; None if there is no accelerator."""

    def launch(self, call: Call, config: Config, *, restore: bool = False) -> Any:
        """Run the call with this configuration and return its result.

        Args:
            restore: for repeated runs on the same arguments: reset and restore what the author
                declared (`reset_to_zero`, `restore_value`, `pre_hook`, `post_hook`), as Triton
                does while it benchmarks. A plain launch does not.

        Raises:
            DispatchError: the configuration is not one that the tunable can run with. What the
                language itself raises (out of resources, compile errors) passes unchanged;
                `is_unfit` tells those apart.
        """

    def compile(self, call: Call, config: Config) -> Resources:
        """Compile the call for the current device without launching; same errors as `launch`."""

    def is_unfit(self, error: BaseException) -> bool:
        """Whether the error means that this configuration cannot run here, but another may."""

    def source_hash(self) -> str:
        """`sha256:<hex>` of the kernel's source, see `identity`."""


class Adapter(Protocol):
    """A language."""

    def find(self, package: ModuleType) -> Mapping[str, Tunable]:
        """The tunables that the package's own modules define, by name, in a stable order.

        Looks at modules that are already imported and imports none. From then on each of them
        reports to `capture`, obeys `forced`, and can be given trees; without any of these it
        behaves as before. Finding twice gives the same objects.
        """
