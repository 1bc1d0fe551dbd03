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

-- An observation is live while it is active and not stale. Which live one stands for a message is kept in the message,
-- so that each message is in one place only (raw, buffered, active, reflected), and "what is still raw" is one look
-- at an index however long the conversation is.
create trigger observation_covers after insert on observation when new.status = 'active' and new.stale = 0 begin
  update message set observation = new.id
    where session = new.session and id between new.first_message and new.last_message and observation is null;
end;

create trigger observation_covers_other
after update of id, session, first_message, last_message, status, stale on observation begin
  update message set observation = null where observation in (old.id, new.id);
  update message set observation = new.id
    where session = new.session and id between new.first_message and new.last_message and observation is null
      and new.status = 'active' and new.stale = 0;
end;

create trigger observation_uncovers after delete on observation begin
  update message set observation = null where observation = old.id;
end;

-- A message that is deleted or edited makes the log that covers it stale: neither searched nor handed out until its
-- range is observed again. An observation that covers nothing any more goes.
create trigger message_observed_deleted after delete on message begin
  update observation set stale = 1
    where session = old.session and first_message <= old.id and last_message >= old.id and stale = 0;
  delete from observation
    where session = old.session and first_message <= old.id and last_message >= old.id
      and not exists (select 1 from message where session = observation.session
        and id between observation.first_message and observation.last_message);
  delete from task
    where session = old.session and purpose = 'observe' and state <> 'done' and state <> 'claimed'
      and first <= old.id and last >= old.id
      and not exists (select 1 from message where session = task.session and id between task.first and task.last);
end;

create trigger message_observed_edited after update of content, parts on message
when new.content is not old.content or new.parts is not old.parts begin
  update observation set stale = 1
    where session = old.session and first_message <= old.id and last_message >= old.id and stale = 0;
end;

-- The range of a stale observation is in the queue again, and a reflection that read it no longer holds.
create trigger observation_stale after update of stale on observation
when new.stale = 1 and old.stale = 0 and new.status = 'active' begin
  update reflection set stale = 1
    where session = new.session and first_observation <= new.id and last_observation >= new.id and stale = 0;
  insert into task (purpose, namespace, session, first, last)
    select 'observe', namespace, id, new.first_message, new.last_message from session where id = new.session
      and not exists (select 1 from task where session = new.session and purpose = 'observe'
        and state <> 'done' and state = 'due'
        and first <= new.first_message and last >= new.last_message);
end;

create trigger observation_reflected_deleted after delete on observation when old.stale = 0 begin
  update reflection set stale = 1
    where session = old.session and first_observation <= old.id and last_observation >= old.id and stale = 0;
end;

create trigger observation_reflected_gone after delete on observation begin
  delete from reflection
    where session = old.session and first_observation <= old.id and last_observation >= old.id
      and not exists (select 1 from observation where session = reflection.session
        and id between reflection.first_observation and reflection.last_observation);
end;

-- One reflection stands for the observations that it read; those before it give way.
create trigger reflection_stands after insert on reflection
when new.stage = 'active' and new.status = 'active' and new.stale = 0 begin
  update observation set stage = 'reflected' where session = new.session and stage = 'active' and status = 'active'
    and stale = 0 and id between new.first_observation and new.last_observation;
  update reflection set status = 'superseded', ended_at = new.occurred_at, ended_by = 'reflection ' || new.id
    where session = new.session and id <> new.id and stage = 'active' and status = 'active';
end;

create trigger reflection_stands_now after update of stage, status, stale on reflection
when new.stage = 'active' and new.status = 'active' and new.stale = 0
  and not (old.stage = 'active' and old.status = 'active' and old.stale = 0) begin
  update observation set stage = 'reflected' where session = new.session and stage = 'active' and status = 'active'
    and stale = 0 and id between new.first_observation and new.last_observation;
  update reflection set status = 'superseded', ended_at = new.occurred_at, ended_by = 'reflection ' || new.id
    where session = new.session and id <> new.id and stage = 'active' and status = 'active';
end;

-- One that no longer holds gives way to the one before it, and to the observations that this one had not read.
create trigger reflection_falls after update of status, stale on reflection
when old.stage = 'active' and old.status = 'active' and old.stale = 0 and (new.status <> 'active' or new.stale = 1) begin
  update reflection set status = 'active', ended_at = null, ended_by = null
    where session = new.session and new.stale = 1 and stale = 0 and ended_by = 'reflection ' || new.id;
  update observation set stage = 'active' where session = new.session and stage = 'reflected'
    and id between new.first_observation and new.last_observation
    and not exists (select 1 from reflection where session = new.session and stage = 'active' and status = 'active'
      and stale = 0 and observation.id between first_observation and last_observation);
end;

create trigger reflection_gone after delete on reflection
when old.stage = 'active' and old.status = 'active' and old.stale = 0 begin
  update reflection set status = 'active', ended_at = null, ended_by = null
    where session = old.session and stale = 0 and ended_by = 'reflection ' || old.id;
  update observation set stage = 'active' where session = old.session and stage = 'reflected'
    and id between old.first_observation and old.last_observation
    and not exists (select 1 from reflection where session = old.session and stage = 'active' and status = 'active'
      and stale = 0 and observation.id between first_observation and last_observation);
end;

-- Where each message is on its way.
create view message_stage as
select message.id, message.session, message.position, message.role, message.content,
  coalesce(observation.stage, 'raw') as stage, message.observation,
  coalesce(message.tokens, (length(message.content) + 3) / 4) as tokens
from message left join observation on observation.id = message.observation;

-- Each observed conversation: what is raw, what is observed, how much smaller the log is, and what waits.
-- (`state <> 'done'` beside another condition lets SQLite use the index of open tasks.)
create view observation_state as
select session.id as session, namespace.name as namespace, session.name,
  (select coalesce(sum(coalesce(tokens, (length(content) + 3) / 4)), 0) from message
    where message.session = session.id and message.observation is null) as tokens_raw,
  (select coalesce(sum(tokens_observed), 0) from observation where observation.session = session.id
    and stage = 'buffered' and status = 'active' and stale = 0) as tokens_buffered,
  seen.tokens_observed, seen.tokens_log,
  round(seen.tokens_observed * 1.0 / nullif(seen.tokens_log, 0), 1) as compression,
  coalesce(head.generation, 0) as generation,
  (select count(*) from observation where observation.session = session.id
    and stage = 'buffered' and status = 'active' and stale = 0) as buffered,
  (select count(*) from task where task.session = session.id and purpose in ('observe', 'reflect')
    and state <> 'done' and state = 'claimed') as in_flight,
  (select count(*) from task where task.session = session.id and purpose in ('observe', 'reflect')
    and state <> 'done' and state = 'due') as due,
  (select count(*) from task where task.session = session.id and purpose in ('observe', 'reflect')
    and state <> 'done' and state = 'failed') as failed
from session join namespace on namespace.id = session.namespace
  join (
    select session.id as session, coalesce(sum(observation.tokens_observed), 0) as tokens_observed,
      coalesce(sum(case observation.stage when 'active' then observation.tokens end), 0) + coalesce((
        select tokens_after from reflection where reflection.session = session.id and stage = 'active'
          and status = 'active' and stale = 0), 0) as tokens_log
    from session left join observation on observation.session = session.id and observation.status = 'active'
      and observation.stale = 0 and observation.stage in ('active', 'reflected')
    group by session.id
  ) as seen on seen.session = session.id
  left join reflection as head on head.session = session.id and head.stage = 'active' and head.status = 'active'
    and head.stale = 0
where session.kind = 'conversation';

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
