-- L3: what a run taught for the next one, written by the model at its end: notes and rules. One profile gathers the
-- lessons of many runs; a second summary of the same run supersedes the first.

create table profile (
  id integer primary key autoincrement,
  namespace integer not null default 1 references namespace (id) on delete cascade,
  profile_id text not null,      -- the user's name of the profile
  session integer references session (id) on delete cascade,  -- the run it looks back on
  text text not null,
  turn_end integer,              -- last turn of the run when it was written
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  stale integer not null default 0 check (stale in (0, 1)),
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;

create index profile_profile on profile (namespace, profile_id, id);
create index profile_session on profile (session);

-- IF condition THEN action, with the turns it cites as a JSON list of numbers.
create table profile_rule (
  id integer primary key autoincrement,
  profile integer not null references profile (id) on delete cascade,
  condition text not null,
  action text not null,
  cited_turns text not null default '[]' check (json_valid(cited_turns))
) strict;

create index profile_rule_profile on profile_rule (profile);

create trigger profile_rule_gone after delete on profile begin
  delete from profile_rule where profile = old.id;
end;

create view profile_document as
select 'profile' as kind, id as row, namespace, session, turn_end as position, null as speaker, profile_id as title,
  text, null as external_id, occurred_at, status, stale, ended_at, null as expires_at
from profile;

create trigger profile_insert after insert on profile begin
  -- Writing the row once more lets profile_update make its search row: one rule for both.
  update profile set text = new.text,
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger profile_update after update of id, namespace, profile_id, session, text, turn_end, status, stale, ended_at, occurred_at on profile begin
  update document set row = new.id where kind = 'profile' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from profile_document where row = new.id)
    where kind = 'profile' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from profile_document
    where row = new.id and not exists (select 1 from document where kind = 'profile' and row = new.id);
end;

create trigger profile_delete after delete on profile begin
  delete from document where kind = 'profile' and row = old.id;
end;

-- A retrospective rests on the episodes of its run: what makes one of them stale makes it stale.
create trigger episode_told_stale after update of stale on episode when new.stale = 1 and old.stale = 0 begin
  update profile set stale = 1
    where session = new.session and coalesce(turn_end, new.turn_start) >= new.turn_start and stale = 0;
end;

create trigger episode_told_deleted after delete on episode begin
  update profile set stale = 1
    where session = old.session and coalesce(turn_end, old.turn_start) >= old.turn_start and stale = 0;
end;
