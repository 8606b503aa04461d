"""How a Hub is reached for one piece of work, from the settings."""

from __future__ import annotations

import time

from .reporter import SILENT, Reporter
from .resolution import Way
from .settings import Settings
from .sources import Source


def way_of(now: Settings, source: Source | None = None, reporter: Reporter = SILENT) -> Way:
    """A way whose time begins now; offline it leads nowhere.

    Args:
        source: what to ask in place of the Hub of the settings.
    """
    ends = time.monotonic() + now.timeout

    def remaining() -> float:
        return ends - time.monotonic()

    def connect(quick: bool) -> Source:
        if source is not None:
            return source
        from .sources.hub import HubSource  # the network stack, only where it is needed

        return HubSource(now.endpoint, remaining(), quick=quick, reporter=reporter)

    return Way(connect=None if now.offline else connect, remaining=remaining)
