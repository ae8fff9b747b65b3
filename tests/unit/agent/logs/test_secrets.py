"""agent.logs.secrets: secrets by their shape and by their value."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.logs.secrets import HIDDEN, LEAST_LETTERS, Hider
from console.registry.bearers import make_token

KEY = make_token("flw")[1]
LOGIN = make_token("fls")[1]
WORD = "canary-7f3a9c"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"The key {KEY} is unknown.", KEY.split("-", 2)[2]),
        (f"{LOGIN}", LOGIN.split("-", 2)[2]),
        (f"> Authorization: Bearer {WORD}", WORD),
        (f"authorization: basic {WORD}==", WORD),
        (f"b'authorization', b'Bearer {WORD}'", WORD),
        ("fallow1.k6RhYmNkZWZnaGlqa2xtbm9w_-.abcdefgh is no invite", "k6RhYm"),
        (f"postgresql://user:{WORD}@host/name", WORD),
        (f"postgresql://:{WORD}@host", WORD),
        (f"https://host:8460/#pin=00&key={WORD}", WORD),
        (f"PGPASSWORD={WORD}", WORD),
        (f"{{'password': '{WORD} {WORD}', 'name': 'ada'}}", WORD),
        (f'"new_password": "{WORD}"', WORD),
        (f"passphrase = {WORD}", WORD),
        (f"Set-Cookie: {WORD}", WORD),
        (f"-----BEGIN EC PRIVATE KEY-----\n{WORD}\n-----END EC PRIVATE KEY-----", WORD),
        (f"-----BEGIN PRIVATE KEY-----\n{WORD} and then it was cut", WORD),
    ],
    ids=(f"shape {number}" for number in itertools.count()),  # keys are other ones in each process
)
def test_what_has_the_shape_of_a_secret_is_hidden(text: str, hidden: str) -> None:
    found = Hider().hide(text)
    assert hidden not in found
    assert HIDDEN in found


@pytest.mark.parametrize(
    "text",
    [
        "A token came through all 2 stages of small in 35 ms.",
        "Closed https://console:8460/v1 with 4400: the certificate of 10.0.0.1:8461 is not trusted.",
        "The passwords of users are hashed; see: fallow-console user password NAME",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "Stage 1 of pipeline 3 failed (memory): it needs 4 GB.",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Hider().hide(text) == text


def test_an_id_of_a_key_stays_so_that_it_can_be_found() -> None:
    assert KEY[4:16] in Hider().hide(KEY)


@settings(max_examples=40)
@given(st.text(max_size=60), st.text(min_size=LEAST_LETTERS, max_size=30), st.text(max_size=60))
def test_what_is_known_is_nowhere_in_what_is_left(before: str, secret: str, after: str) -> None:
    if secret in HIDDEN or HIDDEN in secret:
        return
    hider = Hider([secret])
    assert secret not in hider.hide(before + "|" + secret + "|" + after).replace(HIDDEN, "\x00")


def test_a_secret_that_begins_like_another_is_hidden_whole() -> None:
    assert Hider(["secret-1", "secret-1-longer"]).hide("secret-1-longer") == HIDDEN


def test_short_words_are_not_taken_for_secrets() -> None:
    assert Hider(["abc", ""]).hide("abc of the alphabet") == "abc of the alphabet"


@given(st.text(max_size=500))
def test_no_text_breaks_it_and_twice_is_once(text: str) -> None:
    once = Hider().hide(text)
    assert Hider().hide(once) == once


def test_long_texts_take_no_time_that_grows_faster_than_they_do() -> None:
    # What would take minutes with a pattern that tries everything.
    pieces = ("password", "password='", "://a:", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "Bearer ", "fallow1.")
    for piece in pieces:
        Hider().hide(piece * 10_000)
