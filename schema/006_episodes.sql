-- L2: what a stretch of turns amounted to, written by the model: a phase, its range, a narrative. Ranges of one run
-- have no gaps and no overlaps. The newest max_episodes are current; older ones stay and are found.

create table episode (
  id integer primary key autoincrement,
  session integer not null references session (id) on delete cascade,
  name text not null,
  turn_start integer not null,
  turn_end integer not null,
  narrative text not null,
  heat integer not null default 0,  -- how often memory_block() has put it into a prompt
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  stale integer not null default 0 check (stale in (0, 1)),
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),  -- of its last turn
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  check (turn_end >= turn_start)
) strict;

create index episode_range on episode (session, turn_start, turn_end);

-- Narratives that an extended episode had before.
create table episode_history (
  id integer primary key autoincrement,
  episode integer not null references episode (id) on delete cascade,
  turn_end integer not null,
  narrative text not null,
  replaced_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;

create index episode_history_episode on episode_history (episode);

create trigger episode_extended after update of narrative on episode
when new.narrative is not old.narrative and old.narrative <> '' and new.stale = 0 and old.stale = 0 begin
  insert into episode_history (episode, turn_end, narrative, replaced_at)
    values (new.id, old.turn_end, old.narrative, new.occurred_at);
end;

create trigger episode_history_gone after delete on episode begin
  delete from episode_history where episode = old.id;
end;

create view episode_document as
select 'episode' as kind, episode.id as row, session.namespace, episode.session, episode.turn_start as position,
  null as speaker, episode.name || ' T' || episode.turn_start || '–T' || episode.turn_end as title,
  episode.narrative as text, null as external_id, episode.occurred_at, episode.status, episode.stale,
  episode.ended_at, null as expires_at
from episode join session on session.id = episode.session;

create trigger episode_insert after insert on episode begin
  -- Writing the row once more lets episode_update make its search row: one rule for both.
  update episode set narrative = new.narrative,
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger episode_update after update of id, session, name, turn_start, turn_end, narrative, status, stale, ended_at, occurred_at on episode begin
  update document set row = new.id where kind = 'episode' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from episode_document where row = new.id)
    where kind = 'episode' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from episode_document
    where row = new.id and not exists (select 1 from document where kind = 'episode' and row = new.id);
end;

create trigger episode_delete after delete on episode begin
  delete from document where kind = 'episode' and row = old.id;
end;

-- A turn that is deleted or edited makes the episode over it stale: neither searched nor handed out until it is written
-- anew. Its former narratives rest on the same turns and go.
create trigger turn_told_deleted after delete on turn begin
  update episode set stale = 1
    where session = old.session and turn_start <= old.turn and turn_end >= old.turn and stale = 0;
end;

create trigger turn_told_edited after update of reward, reward_unit, events, actions_taken, extra on turn
when new.reward is not old.reward or new.reward_unit is not old.reward_unit or new.events is not old.events
  or new.actions_taken is not old.actions_taken or new.extra is not old.extra begin
  update episode set stale = 1
    where session = old.session and turn_start <= old.turn and turn_end >= old.turn and stale = 0;
end;

create trigger episode_stale after update of stale on episode when new.stale = 1 and old.stale = 0 begin
  delete from episode_history where episode = new.id;
end;
