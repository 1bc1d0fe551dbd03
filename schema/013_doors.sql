-- What other programs keep through interfaces of their own: files of a model's memory folder, and keyed items of a
-- store. (The sessions that agents keep are messages, 008.) Both are found like everything else.

-- Files. Each change is a row of its own: the version before it ends as superseded, by whom (ended_by: "file 12", or
-- "delete"), so that all rows of a path are its history and a file can be seen as of any day.
create table file (
  id integer primary key autoincrement,
  namespace integer not null default 1 references namespace (id) on delete cascade,
  path text not null check (path glob '/?*'),
  text text not null,
  change text not null default 'create',  -- what made this version: create, str_replace, insert, rename
  status text not null default 'active' check (status in ('active', 'evicted', 'superseded', 'merged')),
  ended_at text,
  ended_by text,
  stale integer not null default 0 check (stale in (0, 1)),
  occurred_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  recorded_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;

create unique index file_live on file (namespace, path) where status = 'active';
create index file_path on file (namespace, path, id);

-- Folders stay when they empty, as on a disk.
create table folder (
  id integer primary key autoincrement,
  namespace integer not null default 1 references namespace (id) on delete cascade,
  path text not null check (path glob '/?*'),
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (namespace, path)
) strict;

create view file_document as
select 'file' as kind, id as row, namespace, null as session, null as position, null as speaker, path as title, text,
  path as external_id, occurred_at, status, stale, ended_at, null as expires_at
from file;

create trigger file_insert after insert on file begin
  -- A shell's `replace` removes the live version at this path without any delete trigger.
  delete from document where new.status = 'active' and kind = 'file' and row <> new.id and external_id = new.path
    and namespace = new.namespace and session is null and status = 'active';
  -- Writing the row once more lets file_update make its search row: one rule for both.
  update file set text = new.text,
    occurred_at = case when new.occurred_at glob '????-??-??T??:??:??.???Z' then new.occurred_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) end where id = new.id;
end;

create trigger file_update after update of id, namespace, path, text, status, stale, ended_at, occurred_at on file begin
  update document set row = new.id where kind = 'file' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from file_document where row = new.id)
    where kind = 'file' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from file_document
    where row = new.id and not exists (select 1 from document where kind = 'file' and row = new.id);
end;

create trigger file_delete after delete on file begin
  delete from document where kind = 'file' and row = old.id;
end;

-- Items: values (JSON) under a key, in a hierarchy of labels. Writing a key again replaces its value.
create table item (
  id integer primary key autoincrement,
  namespace integer not null default 1 references namespace (id) on delete cascade,
  prefix text not null default '',  -- the labels joined with dots, as in users.123; none holds a dot itself
  key text not null,
  value text not null check (json_valid(value)),
  text text,                     -- what search sees; null: all texts in the value
  indexed integer not null default 1 check (indexed in (0, 1)),  -- 0: kept, but not found by what it says
  ttl_minutes real check (ttl_minutes is null or ttl_minutes >= 0),
  expires_at text,
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  updated_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (namespace, prefix, key)
) strict;

create index item_updated on item (namespace, updated_at);
create index item_expires on item (expires_at) where expires_at is not null;

-- Vectors that a host's own embedder made of single fields, as the host's store measures them: float32, unscaled.
-- (The vectors of search are in `embedding`.)
create table item_vector (
  item integer not null references item (id) on delete cascade,
  field text not null,
  vector blob not null,
  primary key (item, field)
) strict, without rowid;

-- An item that is not to be found by what it says has an empty search row, so that forgetting still reaches it.
create view item_document as
select 'item' as kind, id as row, namespace, null as session, null as position, null as speaker,
  case when prefix = '' then key else prefix || '/' || key end as title,
  case when indexed = 0 then '' else coalesce(text, (
    select group_concat(leaf.atom, char(10)) from json_tree(item.value) as leaf where leaf.type = 'text'), '') end as text,
  case when prefix = '' then key else prefix || '/' || key end as external_id, updated_at as occurred_at, 'active' as status, 0 as stale, null as ended_at, expires_at
from item;

create trigger item_insert after insert on item begin
  -- A shell's `replace` removes the row that had this key without any delete trigger.
  delete from item_vector where item in (
    select row from document where kind = 'item' and row <> new.id
      and external_id = case when new.prefix = '' then new.key else new.prefix || '/' || new.key end
      and namespace = new.namespace and session is null and not exists (select 1 from item where id = document.row));
  delete from document where kind = 'item' and row <> new.id
    and external_id = case when new.prefix = '' then new.key else new.prefix || '/' || new.key end
    and namespace = new.namespace and session is null and not exists (select 1 from item where id = document.row);
  -- Writing the row once more lets item_update make its search row: one rule for both.
  update item set value = new.value,
    updated_at = case when new.updated_at glob '????-??-??T??:??:??.???Z' then new.updated_at
    else strftime('%Y-%m-%dT%H:%M:%fZ', new.updated_at) end where id = new.id;
end;

create trigger item_update after update of id, namespace, prefix, key, value, text, indexed, expires_at, updated_at on item begin
  -- A value edited by hand: what was made of the old one is not true of it.
  delete from item_vector where item = old.id and new.value is not old.value;
  update item set text = null where id = new.id and new.value is not old.value and new.text is old.text
    and text is not null;
  update document set row = new.id where kind = 'item' and row = old.id and new.id <> old.id;
  update document set (namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at)
    = (select namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale, ended_at, expires_at
       from item_document where row = new.id)
    where kind = 'item' and row = new.id;
  insert into document (kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at)
    select kind, row, namespace, session, position, speaker, title, text, external_id, occurred_at, status, stale,
      ended_at, expires_at from item_document
    where row = new.id and not exists (select 1 from document where kind = 'item' and row = new.id);
end;

create trigger item_moved after update of id on item when new.id <> old.id begin
  update item_vector set item = new.id where item = old.id;
end;

create trigger item_delete after delete on item begin
  delete from item_vector where item = old.id;
  delete from document where kind = 'item' and row = old.id;
end;

-- Times edited by hand: as in 012_views.sql.
create trigger file_retimed after update of occurred_at on file
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update file set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger item_retimed after update of updated_at on item
when new.updated_at not glob '????-??-??T??:??:??.???Z' begin
  update item set updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.updated_at) where id = new.id;
end;
