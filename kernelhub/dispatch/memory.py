"""What was decided for which arguments, so that a known call costs one key and one lookup."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from . import features
from .fast_code import defaults, function, is_plain, merged, parameter_list, role_of, select_key

# Bounds memory when an argument takes ever new values; then what is needed is learnt again.
MOST_REMEMBERED = 1024


class Memory:
    """Decisions by arguments.

    The key function is generated for the kinds of arguments seen so far (see `fast_code`), and
    anew when one of another kind comes.

    Args:
        signature: of the tunable.
        tuned: parameters that the configuration sets.
        is_feature: whether a scalar argument of that name may matter to the choice.
        tree_features: the features that trees ask for; None if all shapes may matter.
        device_number: ordinal of the current device; None if the arguments' devices count.
    """

    def __init__(
        self,
        signature: inspect.Signature,
        *,
        tuned: Collection[str],
        is_feature: Callable[[str], bool],
        tree_features: Collection[str] | None,
        device_number: Callable[[], int] | None,
    ) -> None:
        self.roles: dict[str, str] = {}
        self._signature = signature
        self._tuned = tuned
        self._is_feature = is_feature
        self._tree_features = tree_features
        self._device_number = device_number
        # Replaced as one, so that another thread never sees the one without the other.
        self._table: tuple[Any, dict[Any, Any]] | None = None
        self.key_text = ""  # of the arguments' part of the key, in terms of their names

    def lookup(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What was decided for such arguments; None if nothing was."""
        if self._table is None:
            return None
        key, known = self._table
        try:
            return known.get(key(*args, **kwargs))
        except (AttributeError, TypeError):  # an argument that is not what it was so far
            return None

    def remember(self, decided: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep a decision for such arguments, after `learn` saw them."""
        if self._table is None:
            return
        key, known = self._table
        if len(known) >= MOST_REMEMBERED:
            known.clear()
        try:
            known[key(*args, **kwargs)] = decided
        except (AttributeError, TypeError):  # unhashable: decided anew each time
            return

    @property
    def known(self) -> dict[Any, Any]:
        """What was decided, by key; another object after `learn` saw news."""
        return {} if self._table is None else self._table[1]

    def learn(self, arguments: Mapping[str, Any]) -> bool:
        """See what the arguments are; whether that was news and all decisions were forgotten."""
        roles = dict(self.roles)
        for name, value in arguments.items():
            found = role_of(value, valued=self._is_feature(name))
            roles[name] = merged(roles.get(name), found)
        if roles == self.roles or not is_plain(self._signature):
            return False
        self.roles = roles
        self._table = self._generate(), {}
        return True

    def _generate(self) -> Any:
        shapes = set(self.roles)
        if self._tree_features is not None:
            shapes = features.shaped(self._tree_features, self.roles)
        parts = [
            select_key(
                name,
                role,
                feature=self._is_feature(name),
                shape=name in shapes,
                device=self._device_number is None,
            )
            for name, role in self.roles.items()
        ]
        self.key_text = ", ".join(parts)
        text = (
            f"def key({parameter_list(self._signature, self._tuned)}):\n"
            f"    return _get_device(), _extra, *_rest.items(), {self.key_text}\n"
        )
        namespace = defaults(self._signature) | {"_get_device": self._device_number or int}
        return function(text, "key", namespace)
