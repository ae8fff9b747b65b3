"""The answers that come: asked for, shown as they grow, kept, stopped. One at most for each chat."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from PySide6.QtCore import QObject, Signal

from agent.look.loop import Job
from console.chat.errors import AnswerFailed
from console.chat.events import Ended, Event, Piece, Queued, Reading, Recovering
from console.chat.records import Attachment, Facts, Message, State
from console.chat.window.desk import Desk
from shard_export.library.counts import counted

SAVE_S = 2.0
"""How much of an answer may be lost when the PC loses its power."""


@dataclass(slots=True)
class Running:
    """An answer that comes: the text so far, and in words what goes on (`note`), `done` of it from 0 to 1 or -1."""

    message: Message
    job: Job
    text: list[str] = field(default_factory=list)
    note: str = "Asking…"
    done: float = -1.0
    asked_s: float = field(default_factory=time.monotonic)
    first_s: float = 0.0
    saved_s: float = field(default_factory=time.monotonic)
    pieces: int = 0

    @property
    def tokens_per_second(self) -> float:
        """How fast it comes; a piece of text is a token, as a rule."""
        took_s = time.monotonic() - self.first_s
        return (self.pieces - 1) / took_s if self.first_s and self.pieces > 1 and took_s > 0 else 0.0


class Answers(QObject):
    """GUI thread."""

    grew = Signal(str, str)
    """An answer's message id, and the text that came."""
    noted = Signal(str)
    """What goes on with an answer changed: its message id."""
    began = Signal(str)
    """A chat's id."""
    ended = Signal(str, str)
    """A chat's id, and that of the message its answer is now."""

    def __init__(self, desk: Desk, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._desk = desk
        self.running: dict[str, Running] = {}
        """By chat."""
        self.retry_at_s: dict[str, float] = {}
        """By message: when the server takes the question again (monotonic clock)."""

    def of_message(self, message_id: str) -> Running | None:
        """Return the answer that is this message, while it comes."""
        return next((one for one in self.running.values() if one.message.id == message_id), None)

    def so_far(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with what has come of them by now: the text of an answer is in none until it has ended."""
        texts = {one.message.id: "".join(one.text) for one in self.running.values()}
        return [
            msgspec.structs.replace(each, text=texts[each.id]) if each.id in texts else each for each in messages
        ]  # fmt: skip

    def send(self, text: str, attachments: list[Attachment]) -> None:
        """Say something in the open chat and ask."""
        branch = self._desk.branch
        parent_id = branch[-1].id if branch else None
        said = self._desk.add("user", text, parent_id=parent_id, attachments=attachments)
        self.ask(said.id)

    def ask(self, parent_id: str) -> None:
        """Ask for an answer to a message of the open chat: a new branch, if it has one. One that comes there stops."""
        chat = self._desk.chat
        if chat is None:
            return
        self.stop(chat.id)
        path = self._desk.tree().path(parent_id)
        facts = Facts(model=chat.setup.model)
        message = self._desk.add("assistant", "", parent_id=parent_id, state="open", facts=facts)
        chat_id = chat.id
        job = self._desk.bridge.ask(
            chat.setup,
            path,
            lambda events: self._take(chat_id, events),
            lambda facts, problem: self._end(chat_id, facts, problem),
        )
        self.running[chat_id] = Running(message, job)
        self.began.emit(chat_id)
        self.noted.emit(message.id)

    def regenerate(self, message_id: str) -> None:
        """Ask for an answer once more; the one there is stays as a branch, unless nothing came of it, nor after it."""
        message = self._desk.tree()[message_id]
        if message.role == "user":
            self.ask(message.id)
            return
        if message.parent_id is None:
            return
        is_last = len(self._desk.tree().below(message_id)) == 1
        if message.state == "failed" and not message.text and is_last and message.chat_id not in self.running:
            self._discard(message)
        self.ask(message.parent_id)

    def edit(self, message_id: str, text: str) -> None:
        """Say a message differently, on a branch of its own; a question is asked again, an answer just stands."""
        tree = self._desk.tree()
        message = tree[message_id]
        if not text.strip() or text == message.text:
            return
        if message.role == "user":
            said = self._desk.add("user", text, parent_id=message.parent_id, attachments=message.attachments)
            self.ask(said.id)
        else:
            self._desk.add("assistant", text, parent_id=message.parent_id, facts=Facts(model=message.facts.model))

    def stop(self, chat_id: str) -> None:
        """Stop an answer: the request is closed, by which the server frees its place. What came stays."""
        running = self.running.get(chat_id)
        if running is not None:
            running.job.cancel()
            self._finish(chat_id, "stopped", running.message.facts)

    def stop_all(self) -> None:
        """Stop every answer."""
        for chat_id in list(self.running):
            self.stop(chat_id)

    def _take(self, chat_id: str, events: list[Event]) -> None:
        running = self.running.get(chat_id)
        if running is None:
            return
        text = "".join(event.text for event in events if isinstance(event, Piece))
        note, done = running.note, running.done
        for event in events:
            if isinstance(event, Piece):
                running.note, running.done = "", -1.0
                running.pieces += 1
                running.first_s = running.first_s or time.monotonic()
            elif not isinstance(event, Ended):
                running.note, running.done = noted(event)
        if text:
            running.text.append(text)
            self.grew.emit(running.message.id, text)
            self._save(running)
        if (note, done) != (running.note, running.done):
            self.noted.emit(running.message.id)

    def _save(self, running: Running) -> None:
        now_s = time.monotonic()
        if now_s - running.saved_s > SAVE_S:
            running.saved_s = now_s
            message = msgspec.structs.replace(running.message, text="".join(running.text))
            self._desk.store.do(lambda file: file.save_messages([message]))

    def _end(self, chat_id: str, facts: Facts, problem: AnswerFailed | None) -> None:
        running = self.running.get(chat_id)
        if running is None:
            return
        if problem is None:
            self._finish(chat_id, "whole", facts)
            return
        if problem.retry_after_s is not None:
            self.retry_at_s[running.message.id] = time.monotonic() + problem.retry_after_s
        facts = msgspec.structs.replace(facts, problem=str(problem), problem_kind=problem.kind)
        self._finish(chat_id, "failed", facts)
        if problem.kind == "model":
            self._desk.ask_models()

    def _finish(self, chat_id: str, state: State, facts: Facts) -> None:
        running = self.running.pop(chat_id)
        if not facts.first_token_ms and running.first_s:
            facts = msgspec.structs.replace(facts, first_token_ms=1000 * (running.first_s - running.asked_s))
        message = msgspec.structs.replace(running.message, text="".join(running.text), state=state, facts=facts)
        self._desk.replace(message)
        if chat_id in self._desk.chats:
            self._desk.change_chat(chat_id, quietly=chat_id == self._desk.open_id, changed_s=time.time())
        self.ended.emit(chat_id, message.id)

    def _discard(self, message: Message) -> None:
        self._desk.tree().take_out(message.id)
        self._desk.store.do(lambda file: file.delete_messages([message.id], 0.0))


def noted(event: Event) -> tuple[str, float]:
    """Say in words what an event tells, and how much of it is done (-1: not known)."""
    if isinstance(event, Queued):
        if event.ahead == 0:
            return "Waiting for a free place: you are next.", -1.0
        others = counted(event.ahead, "answer is", "answers are")
        return f"Waiting for a free place: {others} ahead.", -1.0
    if isinstance(event, Reading):
        return (
            f"Reading the conversation: {event.done:,} of {counted(event.total, 'token', shown=f'{event.total:,}')}.",
            event.done / max(1, event.total),
        )
    if isinstance(event, Recovering):
        return f"{event.reason.rstrip('.')}. Others are taking over, the answer goes on.", -1.0
    return "", -1.0
