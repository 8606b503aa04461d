"""The embedded Hub (extra `serve`): a small Hub for tests, demonstrations and closed networks.

Stock `huggingface_hub` clients, the `hf` command, `git clone` and HF's `kernels` work against it.
Repositories are bare git repositories in a folder; large files lie beside them as LFS objects.

    from kernelhub.serve import create_app        # an ASGI application
    from kernelhub.serve.testing import running_hub
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelhub.errors import MissingExtra

if TYPE_CHECKING:
    from .app import create_app

__all__ = ["create_app"]

_EXTRA = ("dulwich", "starlette", "uvicorn", "anyio")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise MissingExtra("the embedded Hub", "serve") from error
    return app.create_app
