-- Observational memory: an observer turns older messages of a conversation into a dated log while it runs; near the
-- end of the context window the log takes the place of the messages; a reflector condenses the log when it grows.
-- An observation is buffered (made, its messages still in the context), active (it stands for its messages), then
-- reflected (a reflection stands for it).

create table observation (
  id integer primary key autoincrement,
  session integer not null references session (id) on delete cascade,
  first_message integer not null,  -- the messages of the session from this id
  last_message integer not null,   -- to this one
  text text not null,              -- empty after an honest "nothing to record"
  stage text not null default 'buffered' check (stage in ('buffered', 'active', 'reflected')),
  current_task text,               -- hints for the main model
  suggested_response text,
  tokens_observed integer not null default 0,
  tokens integer not null default 0,
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  stale integer not null default 0 check (stale in (0, 1)),
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),  -- of the last message it covers
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  check (last_message >= first_message)
) strict;

create index observation_range on observation (session, first_message, last_message);

create table reflection (
  id integer primary key autoincrement,
  session integer not null references session (id) on delete cascade,
  first_observation integer not null,
  last_observation integer not null,
  generation integer not null default 1,
  level integer not null default 0,
  text text not null,
  stage text not null default 'active' check (stage in ('buffered', 'active')),
  tokens_before integer not null default 0,
  tokens_after integer not null default 0,
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  stale integer not null default 0 check (stale in (0, 1)),
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;

create index reflection_session on reflection (session, generation);

-- A message that is deleted or edited makes the log that covers it stale: neither searched nor handed out until its
-- range is observed again.
create trigger message_observed_deleted after delete on message begin
  update observation set stale = 1
    where session = old.session and first_message <= old.id and last_message >= old.id and stale = 0;
end;

create trigger message_observed_edited after update of content, parts on message
when new.content is not old.content or new.parts is not old.parts begin
  update observation set stale = 1
    where session = old.session and first_message <= old.id and last_message >= old.id and stale = 0;
end;

create trigger observation_reflected_stale after update of stale on observation when new.stale = 1 and old.stale = 0 begin
  update reflection set stale = 1
    where session = new.session and first_observation <= new.id and last_observation >= new.id and stale = 0;
end;

create trigger observation_reflected_deleted after delete on observation begin
  update reflection set stale = 1
    where session = old.session and first_observation <= old.id and last_observation >= old.id and stale = 0;
end;

create view observation_document as
select 'observation' as kind, observation.id as row, session.namespace, observation.session,
  observation.first_message as position, null as speaker, session.name as title, observation.text,
  null as external_id, observation.occurred_at, observation.status, observation.stale, observation.ended_at,
  null as expires_at
from observation join session on session.id = observation.session;

create view reflection_document as
select 'reflection' as kind, reflection.id as row, session.namespace, reflection.session,
  reflection.generation as position, null as speaker, session.name as title, reflection.text,
  null as external_id, reflection.occurred_at, reflection.status, reflection.stale, reflection.ended_at,
  null as expires_at
from reflection join session on session.id = reflection.session;

create trigger observation_insert after insert on observation begin
  -- Writing the row once more lets observation_update make its search row: one rule for both.
  update observation set text = new.text,
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger observation_update after update of id, session, first_message, text, status, stale, ended_at, occurred_at on observation begin
  update document set row = new.id where kind = 'observation' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from observation_document where row = new.id)
    where kind = 'observation' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from observation_document
    where row = new.id and not exists (select 1 from document where kind = 'observation' and row = new.id);
end;

create trigger observation_delete after delete on observation begin
  delete from document where kind = 'observation' and row = old.id;
end;

create trigger reflection_insert after insert on reflection begin
  -- Writing the row once more lets reflection_update make its search row: one rule for both.
  update reflection set text = new.text,
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger reflection_update after update of id, session, generation, text, status, stale, ended_at, occurred_at on reflection begin
  update document set row = new.id where kind = 'reflection' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from reflection_document where row = new.id)
    where kind = 'reflection' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from reflection_document
    where row = new.id and not exists (select 1 from document where kind = 'reflection' and row = new.id);
end;

create trigger reflection_delete after delete on reflection begin
  delete from document where kind = 'reflection' and row = old.id;
end;
