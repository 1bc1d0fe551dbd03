-- Memories: statements worth keeping, taken out of exchanges by the model or told directly. They fade along a
-- forgetting curve that is computed in SQL (view memory_strength): strength falls with the days since the last
-- access, slower the more stable the memory is; each time it is returned it becomes more stable.

create table emotion (
  name text primary key,
  weight real not null check (weight > 0)
) strict, without rowid;

insert into emotion (name, weight) values
  ('joy', 1.15), ('sadness', 1.2), ('anger', 1.25), ('fear', 1.35), ('surprise', 1.1), ('love', 1.25), ('neutral', 1.0);

create table memory (
  id integer primary key autoincrement,
  namespace integer not null default 1 references namespace (id) on delete cascade,
  key text,                      -- the host's idempotency key
  text text not null,
  digest text,                   -- of the normalised text, by the library; null in a row written or edited by hand
  importance real not null default 0.7 check (importance between 0 and 1),
  emotion text not null default 'neutral' references emotion (name),
  stability real not null default 2.0 check (stability >= 0),  -- days
  access_count integer not null default 0,
  last_accessed_at text,         -- null: never returned, it counts from occurred_at
  mention_count integer not null default 1,
  last_mentioned_at text,
  expires_at text,               -- past it the row is no longer found
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  stale integer not null default 0 check (stale in (0, 1)),
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (namespace, key)
) strict;

create index memory_digest on memory (namespace, digest);
create index memory_undigested on memory (namespace) where digest is null;
create index memory_ended_by on memory (ended_by) where ended_by is not null;

-- Further idempotency keys under which the host told a statement that was known already.
create table memory_key (
  namespace integer not null references namespace (id) on delete cascade,
  key text not null,
  memory integer not null references memory (id) on delete cascade,
  primary key (namespace, key)
) strict, without rowid;

create index memory_key_memory on memory_key (memory);

create trigger memory_edited after update of text on memory
when new.text is not old.text and new.digest is old.digest and new.digest is not null begin
  update memory set digest = null where id = new.id;
end;

create view memory_document as
select 'memory' as kind, id as row, namespace, null as session, null as position, null as speaker, null as title,
  text, key as external_id, occurred_at, status, stale, ended_at, expires_at
from memory;

create trigger memory_insert after insert on memory begin
  -- A shell's `replace` removes the row that had this key without any delete trigger.
  delete from memory_key where new.key is not null and memory in (
    select row from document where kind = 'memory' and row <> new.id and external_id = new.key
      and namespace = new.namespace and session is null);
  delete from document where new.key is not null and kind = 'memory' and row <> new.id and external_id = new.key
    and namespace = new.namespace and session is null;
  -- Writing the row once more lets memory_update make its search row: one rule for both.
  update memory set text = new.text,
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger memory_update after update of id, namespace, key, text, status, stale, ended_at, expires_at, occurred_at on memory begin
  update document set row = new.id where kind = 'memory' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from memory_document where row = new.id)
    where kind = 'memory' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from memory_document
    where row = new.id and not exists (select 1 from document where kind = 'memory' and row = new.id);
end;

create trigger memory_delete after delete on memory begin
  delete from memory_key where memory = old.id;
  delete from document where kind = 'memory' and row = old.id;
end;

-- Where the host chose so (evicted_exchanges = 'forget'), memories go with the exchange that leaves the window: those
-- that rest on it alone. What the host told itself (source 'host', or no source 'from') or another exchange told too
-- stays. What is not taken out of the exchange yet is not lost: the exchange itself stays, as evicted.
create trigger exchange_evicted after update of status on exchange
when new.status = 'evicted' and old.status <> 'evicted' and 'forget' = coalesce(
    (select value from setting where key = 'evicted_exchanges' and namespace = 0 and session = new.session),
    (select value from setting where key = 'evicted_exchanges' and session = 0
       and namespace = (select namespace from session where id = new.session)),
    (select value from setting where key = 'evicted_exchanges' and namespace = 0 and session = 0)) begin
  delete from memory where id in (
      select row from source where kind = 'memory' and role = 'from' and source_kind = 'message'
        and source_row in (new.prompt, new.response))
    and not exists (select 1 from source where kind = 'memory' and row = memory.id
      and not (source_kind = 'message' and source_row in (new.prompt, new.response)));
  update or ignore source set role = 'from' where kind = 'memory' and role = 'mentioned_in' and source_kind = 'message'
    and source_row not in (new.prompt, new.response) and row in (
      select row from source where kind = 'memory' and role = 'from' and source_kind = 'message'
        and source_row in (new.prompt, new.response));
  delete from source where kind = 'memory' and source_kind = 'message' and source_row in (new.prompt, new.response);
end;
