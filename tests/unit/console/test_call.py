"""console.call and access: lines of an answer, and what is said when there is none."""

from __future__ import annotations

import itertools
import ssl

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.access import Access
from console.call import Call, LineCall, Lines, not_answered
from console.errors import ClientError, ServiceUnreachable

LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])) | st.just("a\u2028b\u2029c\x85d\re")
HERE, THERE = "https://127.0.0.1:8460", "https://console.example:8460"


@given(st.lists(LINE), st.lists(st.integers(0, 200)), st.booleans())
def test_lines_end_at_line_feeds_only_however_they_come(texts: list[str], cuts: list[int], whole: bool) -> None:
    data = "\n".join(texts).encode() + (b"\n" if whole else b"")
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    lines = Lines()
    heard = [line for a, b in itertools.pairwise(bounds) for line in lines.take(data[a:b])]
    assert [line.decode() for line in [*heard, *lines.end()]] == [text for text in texts if text]
    assert lines.end() == []


def failed(kind: type[httpx2.RequestError], cause: BaseException | None = None) -> httpx2.RequestError:
    error = kind("no")
    error.__cause__ = cause
    return error


def test_how_to_start_a_service_is_said_only_where_it_can_be_started() -> None:
    here, there = (not_answered(url, failed(httpx2.ConnectError)) for url in (HERE, THERE))
    assert "does not answer (ConnectError); start it with: fallow-console serve" in str(here)
    assert "serve" not in str(there)
    assert "does not answer" in str(there)
    assert isinstance(here, ServiceUnreachable)


def test_an_untrusted_certificate_is_told_as_that_however_deep_it_is() -> None:
    deepest = ssl.SSLCertVerificationError(1, "verify failed")
    deepest.verify_message = "self-signed certificate"
    between = OSError("between")
    between.__context__ = deepest
    said = str(not_answered(HERE, failed(httpx2.ConnectError, between)))
    assert "is not trusted (self-signed certificate); choose the file" in said
    assert "serve" not in said


def test_an_answer_that_cannot_be_read_is_no_service_that_is_away() -> None:
    error = not_answered(THERE, failed(httpx2.DecodingError))
    assert "not understood" in str(error)
    assert not isinstance(error, ServiceUnreachable)


@pytest.mark.parametrize("kind", [Call, LineCall])
def test_a_question_does_not_show_its_body(kind: type) -> None:
    assert "secret" not in repr(kind("POST", "/admin/v1/login", bytes, body=b"a secret"))


@pytest.mark.parametrize("url", ["https://10.0.0.300", "https://[::1", "https://console.example:99999"])
def test_what_is_no_address_is_said_before_anything_is_asked(url: str) -> None:
    with pytest.raises(ClientError, match="is no address of a service"):
        Access(url, "key").address()


@pytest.mark.parametrize("token", ["schlüssel", "sk-1\nX-Other: 1", "sk\x00"])
def test_a_key_that_no_header_carries_is_said_and_not_repeated(token: str) -> None:
    with pytest.raises(ClientError, match="copy all of it once more") as refused:
        Access(HERE, token).headers()
    assert token not in str(refused.value)
