-- What was said: messages of a conversation in order, and exchanges (a prompt and its response). A session keeps its
-- newest exchanges as a rolling window; those that leave it stay in the file as evicted.

create table message (
  id integer primary key autoincrement,
  session integer not null references session (id) on delete cascade,
  position integer,              -- place in the session, counted from 1; given by a trigger when left out
  role text not null default 'user',
  speaker text,
  content text not null,
  parts text check (parts is null or json_valid(parts)),  -- tool calls and results as the host gave them
  tokens integer,
  external_id text,
  observation integer references observation (id) on delete set null,  -- what stands for it (010); null: still raw
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;

create index message_position on message (session, position);
create index message_raw on message (session, id) where observation is null;
create index message_observation on message (observation) where observation is not null;
create unique index message_external on message (session, external_id) where external_id is not null;

create view message_document as
select 'message' as kind, message.id as row, session.namespace, message.session, message.position,
  coalesce(message.speaker, message.role) as speaker, session.name as title, message.content as text,
  message.external_id, message.occurred_at, 'active' as status, 0 as stale, null as ended_at, null as expires_at
from message join session on session.id = message.session;

create trigger message_insert after insert on message begin
  -- A shell's `replace` removes the row that had this key without any delete trigger.
  delete from exchange where new.external_id is not null and prompt in (select row from document where kind = 'message' and row <> new.id
    and session = new.session and external_id = new.external_id);
  delete from exchange where new.external_id is not null and response in (select row from document where kind = 'message' and row <> new.id
    and session = new.session and external_id = new.external_id);
  delete from document where new.external_id is not null and kind = 'message' and row <> new.id and session = new.session
    and external_id = new.external_id;
  -- Writing the row once more lets message_update make its search row: one rule for both.
  update message set content = new.content,
    position = coalesce(new.position, 1 + coalesce((select max(position) from message where session = new.session), 0)),
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger message_update after update of id, session, position, role, speaker, content, external_id, occurred_at on message begin
  update document set row = new.id where kind = 'message' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from message_document where row = new.id)
    where kind = 'message' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from message_document
    where row = new.id and not exists (select 1 from document where kind = 'message' and row = new.id);
end;

create trigger message_delete after delete on message begin
  delete from document where kind = 'message' and row = old.id;
end;

create table exchange (
  id integer primary key autoincrement,
  session integer not null references session (id) on delete cascade,
  prompt integer not null references message (id) on delete cascade,
  response integer not null references message (id) on delete cascade,
  key text,                      -- the host's idempotency key
  after_recall integer,          -- newest recall when it was stored: what was handed out later cannot be in it
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (session, key)
) strict;

create index exchange_window on exchange (session, status, id);
create index exchange_prompt on exchange (prompt);
create index exchange_response on exchange (response);

create trigger message_exchange_gone after delete on message begin
  delete from exchange where prompt = old.id or response = old.id;
end;

-- Exchanges as they were said.
create view exchange_text as
select exchange.id, exchange.session, prompt.content as prompt, response.content as response, exchange.status,
  exchange.occurred_at
from exchange join message as prompt on prompt.id = exchange.prompt
  join message as response on response.id = exchange.response;

create trigger exchange_evict after insert on exchange when new.status = 'active' begin
  update exchange set status = 'evicted', ended_at = new.occurred_at, ended_by = 'exchange ' || new.id
    where id in (
      select id from exchange where session = new.session and status = 'active' order by id desc
      limit -1 offset (select max(1, cast(coalesce(
        (select value from setting where key = 'max_exchanges' and namespace = 0 and session = new.session),
        (select value from setting where key = 'max_exchanges' and session = 0
           and namespace = (select namespace from session where id = new.session)),
        (select value from setting where key = 'max_exchanges' and namespace = 0 and session = 0), 7) as integer))));
end;

-- An exchange that is gone has nothing left to take out.
create trigger exchange_gone after delete on exchange begin
  delete from task where purpose = 'extract' and session = old.session and first = old.id and last = old.id;
end;
