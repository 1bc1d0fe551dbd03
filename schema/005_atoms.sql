-- L1: what stood out in the turns, found by the user's own rules. A run keeps its working set of atoms under a cap:
-- above it the atom of lowest priority is evicted (the lower turn, then the lower id, on a tie). Eviction is a
-- trigger of the file, so it holds for every tool and every form of insert.

create table atom (
  id integer primary key autoincrement,
  session integer not null references session (id) on delete cascade,
  key text,                      -- the user's own id, unique in the run: repeating it changes nothing
  turn integer not null,
  type text not null,
  content text not null,
  priority real not null default 50 check (priority between 0 and 100),
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  stale integer not null default 0 check (stale in (0, 1)),
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (session, key)
) strict;

-- The order of eviction, read backwards: what stays comes first.
create index atom_kept on atom (session, priority desc, turn desc, id desc) where status = 'active';
create index atom_turn on atom (session, turn);

create view atom_document as
select 'atom' as kind, atom.id as row, session.namespace, atom.session, atom.turn as position, null as speaker,
  atom.type as title, atom.content as text, atom.key as external_id, atom.occurred_at, atom.status, atom.stale,
  atom.ended_at, null as expires_at
from atom join session on session.id = atom.session;

-- Caps of runs: the run's own setting, else its namespace's, else the file's.
create view atom_cap as
select run.id as session, max(1, cast(coalesce(
    (select value from setting where key = 'max_atoms' and namespace = 0 and session = run.id),
    (select value from setting where key = 'max_atoms' and namespace = run.namespace and session = 0),
    (select value from setting where key = 'max_atoms' and namespace = 0 and session = 0), 20) as integer)) as cap
from session as run;

-- `limit -1 offset cap` is right for every cap and every number of rows in one statement; `limit (count - cap)`
-- would delete everything below the cap, since a negative limit is none.
create trigger atom_evict after insert on atom when new.status = 'active' begin
  update atom set status = 'evicted', ended_at = new.occurred_at, ended_by = 'atom ' || new.id
    where id in (
      select id from atom where session = new.session and status = 'active'
      order by priority desc, turn desc, id desc
      limit -1 offset (select cap from atom_cap where session = new.session));
end;

create trigger atom_evict_on_update after update of status, priority, session, turn on atom when new.status = 'active' begin
  update atom set status = 'evicted', ended_at = new.occurred_at, ended_by = 'atom ' || new.id
    where id in (
      select id from atom where session = new.session and status = 'active'
      order by priority desc, turn desc, id desc
      limit -1 offset (select cap from atom_cap where session = new.session));
end;

-- A trigger of its own event, so that it sees the end already written in the row.
create trigger atom_evicted after update of status on atom when new.status = 'evicted' begin
  delete from atom where id = new.id and 'delete' = coalesce(
    (select value from setting where key = 'evicted_atoms' and namespace = 0 and session = new.session),
    (select value from setting where key = 'evicted_atoms' and session = 0
       and namespace = (select namespace from session where id = new.session)),
    (select value from setting where key = 'evicted_atoms' and namespace = 0 and session = 0));
end;

-- A cap that is lowered evicts at once: in its own run, or in all when it was the namespace's or the file's.
create view atom_over_cap as
select id, session from (
  select atom.id, atom.session, atom_cap.cap, row_number() over (
    partition by atom.session order by atom.priority desc, atom.turn desc, atom.id desc) as place
  from atom join atom_cap on atom_cap.session = atom.session where atom.status = 'active')
where place > cap;

create trigger atom_cap_insert after insert on setting when new.key = 'max_atoms' begin
  update atom set status = 'evicted', ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_by = 'setting max_atoms'
    where new.session <> 0 and id in (select id from atom_over_cap where session = new.session);
  update atom set status = 'evicted', ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_by = 'setting max_atoms'
    where new.session = 0 and id in (select id from atom_over_cap);
end;

create trigger atom_cap_update after update on setting when new.key = 'max_atoms' begin
  update atom set status = 'evicted', ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_by = 'setting max_atoms'
    where new.session <> 0 and id in (select id from atom_over_cap where session = new.session);
  update atom set status = 'evicted', ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_by = 'setting max_atoms'
    where new.session = 0 and id in (select id from atom_over_cap);
end;

create trigger atom_cap_delete after delete on setting when old.key = 'max_atoms' begin
  update atom set status = 'evicted', ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_by = 'setting max_atoms'
    where old.session <> 0 and id in (select id from atom_over_cap where session = old.session);
  update atom set status = 'evicted', ended_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), ended_by = 'setting max_atoms'
    where old.session = 0 and id in (select id from atom_over_cap);
end;

create trigger atom_insert after insert on atom begin
  -- A shell's `replace` removes the row that had this key without any delete trigger.
  delete from document where new.key is not null and kind = 'atom' and row <> new.id and session = new.session and external_id = new.key;
  -- Writing the row once more lets atom_update make its search row: one rule for both.
  update atom set content = new.content,
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger atom_update after update of id, session, key, turn, type, content, status, stale, ended_at, occurred_at on atom begin
  update document set row = new.id where kind = 'atom' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from atom_document where row = new.id)
    where kind = 'atom' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from atom_document
    where row = new.id and not exists (select 1 from document where kind = 'atom' and row = new.id);
end;

create trigger atom_delete after delete on atom begin
  delete from document where kind = 'atom' and row = old.id;
end;

-- An atom rests on its turn and goes with it.
create trigger turn_atoms_gone after delete on turn begin
  delete from atom where session = old.session and turn = old.turn;
end;
