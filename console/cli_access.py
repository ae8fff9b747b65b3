"""`fallow-console user`, `key` and `audit`: who may do what, and who did what."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from console import tables
from console.addresses import reach_text
from console.api.admin import types as wire
from console.chat_link import ChatLink
from console.cli_tools import Commands, client_of, command, group, hand_over_secret, read_password, show
from console.errors import ClientError
from console.registry import chain
from console.registry.errors import AuditBroken
from console.registry.records import ROLE_SCOPES, AuditEntry
from shard_export.library.counts import counted

SCOPES = ("chat", "view", "operate", "audit", "admin")


def add_access(commands: Commands) -> None:
    """Add the subcommands."""
    _add_users(group(commands, "user", "people who may log in: add, list and change them"))
    _add_keys(group(commands, "key", "API keys: make, list, limit and revoke them"))
    _add_audit(group(commands, "audit", "the log of every change: read, search, export and verify it"))


def _add_users(actions: Commands) -> None:
    create = command(actions, "create", "add a user; the password is asked for, or read from standard input", _create)
    create.add_argument("name", metavar="NAME")
    create.add_argument("--role", choices=tuple(ROLE_SCOPES), default="user")
    create.add_argument("--no-password", action="store_true", help="no logging in; the user may still own keys")
    command(actions, "list", "list the users", _users)
    role = command(actions, "role", "change what a user may do", _role)
    role.add_argument("name", metavar="NAME")
    role.add_argument("role", choices=tuple(ROLE_SCOPES))
    password = command(actions, "password", "give a user another password; their logins end", _password)
    password.add_argument("name", metavar="NAME")
    password.add_argument("--none", action="store_true", help="take the password away")
    for name, summary, disabled in (
        ("disable", "shut a user out; their logins end and their keys stop working", True),
        ("enable", "let a user in again", False),
    ):
        parser = command(actions, name, summary, _disable)
        parser.add_argument("name", metavar="NAME")
        parser.set_defaults(disabled=disabled)


def _add_keys(actions: Commands) -> None:
    create = command(actions, "create", "make a key; it is shown only once", _key_create)
    create.add_argument("name", metavar="NAME", help="what it is for")
    create.add_argument("--scope", choices=SCOPES, default="chat")
    create.add_argument("--days", type=float, metavar="N", help="how long it lives (default: until revoked)")
    create.add_argument("--user", default="", metavar="NAME", help="whose it is; their role limits it, too")
    _add_limits(create)
    create.add_argument("--out", type=Path, metavar="FILE", help="write it to a file only you can read")
    create.add_argument(
        "--link", action="store_true", help="make it a chat link, which fallow-chat opens: address, authority and key"
    )
    command(actions, "list", "list the keys and what they used today", _key_list)
    limit = command(actions, "limit", "replace the limits of a key; what is not given is not limited", _key_limit)
    limit.add_argument("id", help="the key's id")
    _add_limits(limit)
    revoke = command(actions, "revoke", "end a key at once", _key_revoke)
    revoke.add_argument("id", help="the key's id")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, metavar="N", help="answers at once")
    parser.add_argument("--tokens-per-day", type=int, metavar="N", help="tokens of prompts and answers a day (UTC)")
    parser.add_argument("--model", action="append", default=[], metavar="ID", help="only these models; repeat it")


def _add_audit(actions: Commands) -> None:
    listing = command(actions, "list", "show the newest entries", _audit_list)
    search = command(actions, "search", "show the newest entries with all these words (or beginnings)", _audit_list)
    search.add_argument("words", nargs="+", metavar="WORD")
    for parser in (listing, search):
        parser.add_argument("--limit", type=int, default=100, metavar="N")
    export = command(actions, "export", "write the whole log, one JSON object a line", _audit_export)
    export.add_argument("--out", type=Path, required=True, metavar="FILE")
    verify = command(actions, "verify", "check that no entry was changed, removed or added", _audit_verify)
    verify.add_argument("--file", type=Path, metavar="FILE", help="check an export instead, without a console")
    verify.add_argument("--known", default="", metavar="N:HASH", help="an entry noted at an earlier check")


def _create(options: argparse.Namespace) -> int:
    password = None if options.no_password else read_password(f"Password of {options.name}")
    with client_of(options) as console:
        user = console.create_user(options.name, role=options.role, password=password)
    return show(options, user, f"{user.name} is a user now, as {user.role}.")


def _users(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        users = console.users()
    return show(options, users, tables.users_table(users))


def _role(options: argparse.Namespace) -> int:
    return _change(options, wire.UserChange(role=options.role), f"is {options.role} now")


def _password(options: argparse.Namespace) -> int:
    password = None if options.none else read_password(f"New password of {options.name}")
    return _change(options, wire.UserChange(password=password), "has no password" if options.none else "has it")


def _disable(options: argparse.Namespace) -> int:
    what = "is shut out" if options.disabled else "may come in again"
    return _change(options, wire.UserChange(disabled=options.disabled), what)


def _change(options: argparse.Namespace, change: wire.UserChange, what: str) -> int:
    with client_of(options) as console:
        user = console.change_user(options.name, change)
    return show(options, user, f"{user.name} {what}.")


def _limits(options: argparse.Namespace) -> wire.Limits:
    return wire.Limits(options.streams, options.tokens_per_day, options.model)


def _key_create(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        made = console.create_key(
            options.name, scope=options.scope, days=options.days, user=options.user, limits=_limits(options)
        )
        if options.link:
            pin = console.authority().pin if console.url.startswith("https") else ""
            link = ChatLink(console.url, made.secret, pin).text()
            if reach := reach_text(console.url):
                print(reach, file=sys.stderr)
            return hand_over_secret(options, wire.Done(detail={"link": link}), link, "The chat link")
    return hand_over_secret(options, made, made.secret, "The key")


def _key_list(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        keys = console.keys()
    return show(options, keys, tables.keys_table(keys))


def _key_limit(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        key = console.limit_key(options.id, _limits(options))
    return show(options, key, tables.keys_table([key]))


def _key_revoke(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        console.revoke_key(options.id)
    return show(options, wire.Done(), f"The key {options.id} no longer opens anything.")


def _audit_list(options: argparse.Namespace) -> int:
    with client_of(options) as console:
        entries = console.audit(limit=options.limit, search=" ".join(getattr(options, "words", [])))
    return show(options, entries, tables.audit_table(entries))


def _audit_export(options: argparse.Namespace) -> int:
    count = 0
    # A device or a pipe takes the log itself; nothing can take its place.
    is_file = not options.out.exists() or options.out.is_file()
    part = options.out.with_name(f"{options.out.name}.part") if is_file else options.out
    try:
        with client_of(options) as console, _private(part) if is_file else part.open("wb") as file:
            for line in console.export_audit():
                file.write(line + b"\n")
                count += 1
        if is_file:
            part.replace(options.out)
    except OSError as error:
        raise ClientError(f"{options.out} cannot be written ({error.strerror}); choose another file.") from None
    finally:
        # Half a log would pass for a whole one that was tampered with.
        if is_file:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
    done = wire.Done(detail={"file": str(options.out), "entries": count})
    return show(options, done, f"{counted(count, 'entry is', 'entries are')} in {options.out}.")


def _private(path: Path) -> IO[bytes]:
    """Open a new file that only its owner can read, in the place of what was left there or put there by others."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600), "wb")


def _audit_verify(options: argparse.Namespace) -> int:
    sequence, known_hash = _known(options.known)
    if options.file is None:
        with client_of(options) as console:
            checked = console.verify_audit(sequence, known_hash)
    else:
        try:
            with options.file.open("rb") as file:
                checked = chain.check(_entries(file), [(sequence, known_hash)] if known_hash else [])
        except AuditBroken as error:
            raise ClientError(str(error)) from None
        except OSError as error:
            raise ClientError(f"{options.file} cannot be read ({error.strerror}); check its name.") from None
    text = f"{counted(checked.entries, 'entry is as it was', 'entries are as they were')} written."
    noted = f"Note this for the next check: --known {checked.last_sequence}:{checked.last_hash}"
    return show(options, checked, text, noted)


def _entries(lines: Iterable[bytes]) -> Iterator[AuditEntry]:
    decoder = msgspec.json.Decoder(AuditEntry)
    for number, line in enumerate(lines, 1):
        try:
            yield decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise ClientError(f"Line {number} of the file is not an entry of an audit log.") from None


def _known(text: str) -> tuple[int, str]:
    sequence, _, known_hash = text.partition(":")
    if text and not (sequence.isdecimal() and len(known_hash) == 64):
        raise ClientError("--known takes what an earlier check printed: a number, a colon and 64 digits.")
    return int(sequence or 0), known_hash
