"""Environment variables: what they mean, and that one that means nothing is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelhub.errors import SettingsError
from kernelhub.settings import DEFAULT_ENDPOINT, Settings


def read(**variables: str) -> Settings:
    return Settings.from_environment(variables)


def test_defaults() -> None:
    now = read()
    assert now.endpoint == DEFAULT_ENDPOINT
    assert (now.offline, now.strict, now.use_lock, now.interpret) == (False, False, True, None)
    assert (now.timeout, now.publish_timeout) == (600.0, 3600.0)
    assert now.cache == Path("~/.cache/huggingface/kernelhub").expanduser()


def test_what_variables_say(tmp_path: Path) -> None:
    now = read(
        HF_ENDPOINT="http://[::1]:8765/hub/",
        HF_HOME=str(tmp_path),
        HF_HUB_OFFLINE="Yes",
        KERNELHUB_TIMEOUT="2.5",
        KERNELHUB_PUBLISH_TIMEOUT="90",
        KERNELHUB_TRUST="org, other/k ,",
        KERNELHUB_LOCK="0",
        TRITON_INTERPRET="1",
    )
    assert now.endpoint == "http://[::1]:8765/hub"
    assert now.cache == tmp_path / "kernelhub"
    assert (now.timeout, now.publish_timeout) == (2.5, 90.0)
    assert now.trust == ("org", "other/k")
    assert (now.offline, now.use_lock, now.interpret) == (True, False, True)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(
            ("HF_ENDPOINT", url)
            for url in ("127.0.0.1:8765", "ftp://hub", "http://", "http://[::1")
        ),
        ("HF_ENDPOINT", "http://hub:99999"),
        *(("KERNELHUB_TIMEOUT", text) for text in ("soon", "0", "-1", "nan", "inf")),
        ("KERNELHUB_PUBLISH_TIMEOUT", "1h"),
        ("KERNELHUB_OFFLINE", "maybe"),
        ("LOCAL_KERNELS", "org/k"),
    ],
)
def test_a_value_that_means_nothing_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(**{variable: value})
    assert variable in str(caught.value)
    assert value in str(caught.value)
