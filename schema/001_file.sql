-- The file itself: whose memory it holds, in which sessions, under which settings, and what must not come back.
--
-- Conventions of every layer: tables are strict; an instant is text such as 2026-01-02T03:04:05.678Z (UTC), so that
-- text order is time order; ids are never used twice; rows that can end carry status, ended_at (event time of what
-- ended them), ended_by ("atom 57"), and rows that rest on something since changed are stale. Nothing here hangs on
-- a connection's pragmas: dependants go by triggers, "on delete cascade" only says the same again.

-- Whose memory it is. Names are compared exactly and with case. Row 1 is the documented default.
create table namespace (
  id integer primary key autoincrement,
  name text not null unique check (name <> ''),
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;

insert into namespace (id, name) values (1, 'default');

-- A run of an agent, or a conversation. Chat and observation of one name share one transcript.
create table session (
  id integer primary key autoincrement,
  namespace integer not null default 1 references namespace (id) on delete cascade,
  name text not null default 'default' check (name <> ''),
  kind text not null default 'conversation' check (kind in ('run', 'conversation')),
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (namespace, name, kind)
) strict;

-- Key and value for the file (both 0), for a namespace, or for a session. Triggers read them: caps, retention.
create table setting (
  key text not null,
  namespace integer not null default 0,
  session integer not null default 0,
  value any,
  primary key (key, namespace, session)
) strict, without rowid;

insert into setting (key, value) values
  ('format', 'istar-lite'),      -- with schema_version: a restored dump, which loses application_id, is still ours
  ('schema_version', 12),
  ('extract_every', 10),         -- turns between two extractions of atoms
  ('episode_every', 25),         -- turns between two updates of the episode
  ('max_atoms', 20),             -- working set of atoms of one run
  ('max_episodes', 5),           -- episodes of one run shown as current
  ('evicted_atoms', 'keep'),     -- keep | delete
  ('max_exchanges', 7),          -- rolling window of exchanges of one session
  ('evicted_exchanges', 'keep'), -- keep | forget: what happens to the memories of an exchange that leaves it
  ('max_recalls', 1000);         -- newest recalls of one namespace that are remembered

-- What `forget` removed. The library checks extraction, import and merge against it. No SQLite has a hash function,
-- so no trigger can; digests are salted because those of short secrets can be guessed.
create table tombstone (
  id integer primary key autoincrement,
  kind text not null,
  namespace integer not null references namespace (id) on delete cascade,
  salt blob not null,
  digest text not null,          -- SHA-256 (hex) of salt and normalised text
  forgotten_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (namespace, salt, digest, kind)
) strict;
