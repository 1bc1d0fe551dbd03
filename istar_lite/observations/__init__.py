"""Observational memory: a conversation longer than its context window (layers.md calls the parts by these names).

What is said is kept as it was said, for good. A *chunk* (a row of `observation`) stands for a range of messages; the
*log* is the newest reflection and the chunks it has not read. All state is rows; an object holds handlers and the
thread that works, nothing else.

States of a message, kept by triggers (schema 010) in `message.observation`:

    raw ──observe──▶ buffered ──activate──▶ active ──reflect──▶ reflected
     ▲                  │                     │                    │
     └──────── stale (a message of the range was edited or deleted, also by plain SQL) ────────┘

What each step needs, what it writes in its one transaction, and what a crash before that leaves:

- raw → due: at a turn's end, `interval` tokens of raw messages. Writes the task with its range. Before: raw messages.
- due → claimed: no live claim of the purpose in the session, in any process. Writes the claim and until when it
  holds. Before: a due task.
- claimed → buffered (or active, where the host waits): the claim is still ours, all messages are unchanged and raw.
  Writes the chunk, the task as done, the rest of its range as due. Before: a claim that ends with its process or its
  time, so the task is due again. Answers to the pieces of an oversized chunk are kept in the task meanwhile, and are
  not asked for twice.
- buffered → active: a context at 0.9 of the window, and a chunk that ends before the newest exchange (a later one
  only if nothing else helps). Writes the stage. Before: a buffered chunk, which the next context activates.
- active → reflected: the log at its threshold, the claim, and a log that still begins with what was read. Writes the
  reflection and the task as done; the stages follow by trigger. Before: the old log.
- any → stale: an edited or deleted message. Triggers write the flag and the task for the range; reflections over it
  give way to the one before.
- claimed → failed: the model failed, or its answer is unusable. Writes the reason and when to try next.

A late result whose messages were edited, deleted or covered is dropped; a reflection names the last observation it
read, and what arrived since stays after it. Messages leave the context by being covered, and for no other reason as
long as the model answers; when it does not, the newest that fit are shown and the rest is counted, not lost.

`budget` is the arithmetic, `units` what may not be torn, `parts` the hosts' forms of messages, `rows` and `claims` the
file, `observer` and `reflector` the two flows that ask, `window` and `cutting` what is shown, `hosts_list` hosts with
a list of their own, `recall_tool` the way back to the exact words, `work` and `background` who drives.
"""

from __future__ import annotations

from istar_lite.observations.hosts_list import ContextMessages
from istar_lite.observations.observational import ObservationalMemory
from istar_lite.observations.recall_tool import RecallTool
from istar_lite.observations.work import drain

__all__ = ["ContextMessages", "ObservationalMemory", "RecallTool", "drain"]
