-- L0: what an agent saw, did and gained at each step of a run. Numbers rise within a run, not necessarily by one.

create table turn (
  id integer primary key autoincrement,
  session integer not null references session (id) on delete cascade,
  turn integer not null,
  reward real,
  reward_unit text not null default '',
  events text not null default '[]' check (json_valid(events)),
  actions_taken text not null default '[]' check (json_valid(actions_taken)),
  extra text not null default '{}' check (json_valid(extra)),
  text text,                     -- what search sees, the host's own or else the line of the view turn_line
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (session, turn)
) strict;

create view turn_document as
select 'turn' as kind, turn.id as row, session.namespace, turn.session, turn.turn as position, null as speaker,
  'T' || turn.turn as title, coalesce(turn.text, '') as text, null as external_id, turn.occurred_at,
  'active' as status, 0 as stale, null as ended_at, null as expires_at
from turn join session on session.id = turn.session;

-- The line that search sees: `T12 · 42.5 EUR · price_spike, storm · buy qty=10 · price=105`. One rule for rows written
-- by the library and by hand. Of a dict in a list the value of name, type, event or action stands without its key.
create view turn_line as
select turn.id, 'T' || turn.turn
  || coalesce(' · ' || rtrim(case when turn.reward is not null then printf('%.15g', turn.reward) end || ' ' || turn.reward_unit), '')
  || coalesce(' · ' || (select group_concat(item, ', ') from (
      select case when type = 'object' then (
          select group_concat(case when key in ('name', 'type', 'event', 'action') then '' else key || '=' end || value, ' ')
          from json_each(each.value) where type <> 'null')
        when typeof(each.key) = 'text' then each.key || '=' || value else value end as item
      from json_each(turn.events) as each where type <> 'null')), '')
  || coalesce(' · ' || (select group_concat(item, ', ') from (
      select case when type = 'object' then (
          select group_concat(case when key in ('name', 'type', 'event', 'action') then '' else key || '=' end || value, ' ')
          from json_each(each.value) where type <> 'null')
        when typeof(each.key) = 'text' then each.key || '=' || value else value end as item
      from json_each(turn.actions_taken) as each where type <> 'null')), '')
  || coalesce(' · ' || (select group_concat(key || '=' || value, ' ') from json_each(turn.extra) where type <> 'null'), '')
  as line
from turn;

create trigger turn_insert after insert on turn begin
  -- A shell's `replace` removes the row that had this key without any delete trigger.
  delete from document where kind = 'turn' and row <> new.id and session = new.session and position = new.turn
    and namespace = (select namespace from session where id = new.session);
  -- Writing the row once more lets turn_update make its search row: one rule for both.
  update turn set text = coalesce(new.text, (select line from turn_line where id = new.id)),
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger turn_update after update of id, session, turn, text, occurred_at on turn begin
  update document set row = new.id where kind = 'turn' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from turn_document where row = new.id)
    where kind = 'turn' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from turn_document
    where row = new.id and not exists (select 1 from document where kind = 'turn' and row = new.id);
end;

-- An edit by hand of what the line tells makes it anew, unless the host gave a text of its own.
create trigger turn_retold after update of turn, reward, reward_unit, events, actions_taken, extra on turn
when new.text is old.text and (old.text = 'T' || old.turn or old.text glob 'T' || old.turn || ' · *') begin
  update turn set text = (select line from turn_line where id = new.id) where id = new.id;
end;

create trigger turn_delete after delete on turn begin
  delete from document where kind = 'turn' and row = old.id;
end;
