"""What of prompts and replies is kept beside the log: `output.keep`."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from orchestrator.core.errors import JudgeError
from orchestrator.core.ports import Store
from orchestrator.core.wire import Reply, Request
from orchestrator.store.codec import decode_reply, digest, encode_reply


class KeepPrompts(StrEnum):
    """Nothing, a digest that tells whether a prompt has changed, or the whole prompt."""

    NONE = "none"
    HASH = "hash"
    FULL = "full"


class KeepReplies(StrEnum):
    """Nothing, the verdicts alone (they stand in the log), or the whole reply."""

    NONE = "none"
    PARSED = "parsed"
    FULL = "full"


class BlobArchive:
    """Keeps prompts and replies as blobs of the run's store."""

    def __init__(self, store: Store, prompts: KeepPrompts, replies: KeepReplies) -> None:
        self._store = store
        self._prompts = prompts
        self._replies = replies

    def prompt(self, request: Request) -> str:
        """Keep a prompt as the user allows; give its digest."""
        if self._prompts is KeepPrompts.NONE:
            return ""
        data = _encoded(request)
        return self._store.put_blob(data) if self._prompts is KeepPrompts.FULL else digest(data)

    def reply(self, reply: Reply) -> str:
        """Keep a reply as the user allows; give its digest."""
        if self._replies is not KeepReplies.FULL:
            return ""
        return self._store.put_blob(encode_reply(reply))

    @property
    def keeps_words(self) -> bool:
        """Whether words about an attempt are kept: they may quote its prompt or its reply."""
        return self._replies is KeepReplies.FULL and self._prompts is not KeepPrompts.NONE

    def words(self, error: JudgeError) -> str:
        """Keep a provider's words as the user allows; without them, say what kind of error it is."""
        return str(error) if self.keeps_words else error.plain


def name_prompt(request: Request) -> str:
    """Digest a prompt as `BlobArchive` does."""
    return digest(_encoded(request))


def _encoded(request: Request) -> bytes:
    return msgspec.json.encode(request.parts)


class HasBlobs(Protocol):
    """A store or a reader of one."""

    def get_blob(self, digest: str) -> bytes | None:
        """Fetch a blob."""
        ...


def recall(blobs: HasBlobs, digest: str) -> Reply | None:
    """Read a kept reply again; None if it is not there."""
    data = blobs.get_blob(digest)
    return None if data is None else decode_reply(data)
