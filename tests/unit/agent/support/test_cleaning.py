"""agent.support.cleaning: secrets and people's folders, in texts, values and lines of logs."""

from __future__ import annotations

import json
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.logs.secrets import HIDDEN
from agent.support.cleaning import Cleaner

CANARY = "canary-secret"


@pytest.fixture
def cleaner() -> Cleaner:
    return Cleaner([CANARY], Path("/home/ann"))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("/home/ann/.local/share/fallow", "~/.local/share/fallow"),
        ("/home/bob/x and /Users/eve", f"/home/{HIDDEN}/x and /Users/{HIDDEN}"),
        (r"C:\Users\bob\x", rf"C:\Users\{HIDDEN}\x"),
        (r"C:\\Users\\bob\\x", rf"C:\\Users\\{HIDDEN}\\x"),
        (f"It is {CANARY}.", f"It is {HIDDEN}."),
        ("postgresql://u:pass@host/x", f"postgresql://u:{HIDDEN}@host/x"),
        ("/srv/models/small", "/srv/models/small"),
        ("/backup/home/ann/x and /home/ann2", f"/backup/home/{HIDDEN}/x and /home/{HIDDEN}"),
    ],
)
def test_texts(cleaner: Cleaner, text: str, cleaned: str) -> None:
    assert cleaner.text(text) == cleaned


def test_a_home_on_windows_is_found_however_it_is_written() -> None:
    cleaner = Cleaner((), cast(Path, PureWindowsPath(r"D:\people\ann")))
    for text in (r"D:\people\ann\x", r"D:\\people\\ann\\x", "D:/people/ann/x"):
        assert cleaner.text(text)[0] == "~"


def test_a_home_that_is_the_root_hides_nothing() -> None:
    assert Cleaner((), Path("/")).text("/srv/models") == "/srv/models"


def test_what_is_called_a_secret_is_hidden_whatever_it_is(cleaner: Cleaner) -> None:
    value = {
        "password": "x", "api_key": ["y"], "deep": [{"new_passphrase": {"a": "z"}}], "key_protection": "keyring",
        "tokens_today": 5, "secret_count": 3, "authorization": "",
    }  # fmt: skip
    assert cleaner.value(value) == {
        "password": HIDDEN, "api_key": HIDDEN, "deep": [{"new_passphrase": HIDDEN}], "key_protection": "keyring",
        "tokens_today": 5, "secret_count": 3, "authorization": "",
    }  # fmt: skip


def test_lines_of_a_log_stay_json_and_others_stay_texts(cleaner: Cleaner) -> None:
    line = json.dumps({"message": f'password="{CANARY}" in /home/ann/x', "exception": "a\nb"})
    first, second, third = cleaner.lines(f"{line}\n{CANARY} of /home/bob/\n{{torn {CANARY}").split("\n")
    assert json.loads(first) == {"message": f"password={HIDDEN} in ~/x", "exception": "a\nb"}
    assert second == f"{HIDDEN} of /home/{HIDDEN}/"
    assert third == f"{{torn {HIDDEN}"


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20), st.just(CANARY)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)


@given(JSON)
def test_a_secret_is_in_no_value_and_its_kind_stays(value: Any) -> None:
    cleaned = Cleaner([CANARY], Path("/home/ann")).value(value)
    assert CANARY not in json.dumps(cleaned, ensure_ascii=False)
    assert type(cleaned) is type(value)


def test_nesting_without_an_end_is_cut(cleaner: Cleaner) -> None:
    value: Any = CANARY
    for _ in range(200):
        value = [value]
    assert CANARY not in json.dumps(cleaner.value(value))
