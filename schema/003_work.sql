-- Work: one row for each piece of work that a model (or an extractor) does, written in the transaction of its
-- result. The end of the last `task` that is done is the watermark of its purpose: nothing is skipped or done twice,
-- whatever process dies where.

create table task (
  id integer primary key autoincrement,
  purpose text not null check (purpose in ('atoms', 'episode', 'retro', 'extract', 'consolidate', 'observe', 'reflect')),
  namespace integer not null default 1 references namespace (id) on delete cascade,
  session integer references session (id) on delete cascade,
  first integer,                 -- first and last id of the input (numbers of turns for atoms, episode, retro)
  last integer,
  state text not null default 'due' check (state in ('due', 'claimed', 'done', 'failed')),
  claim text,                    -- who works on it, and until when that holds: a dead process frees it
  claimed_until text,
  attempts integer not null default 0,
  next_step integer,             -- after a failure: the host's step (turn, count) at which it is tried again
  next_try_at text,              -- and the time at which background work tries it again
  last_error text,
  detail text check (detail is null or json_valid(detail)),
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  finished_at text
) strict;

create index task_done on task (session, purpose, last) where state = 'done';
create index task_open on task (purpose, session, first) where state <> 'done';

-- The ledger: every call of the model, whatever came of it.
create table model_call (
  id integer primary key autoincrement,
  task integer references task (id) on delete set null,
  purpose text not null,
  namespace integer references namespace (id) on delete cascade,
  session integer references session (id) on delete cascade,
  attempt integer not null default 1,
  model text,
  called_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  seconds real not null default 0,
  tokens_in integer,
  tokens_out integer,
  outcome text not null check (outcome in ('ok', 'empty', 'unusable', 'failed', 'timeout', 'cancelled')),
  error text
) strict;

create index model_call_day on model_call (called_at);
create index model_call_task on model_call (task);

create trigger task_delete after delete on task begin
  update model_call set task = null where task = old.id;
end;
