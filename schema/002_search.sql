-- Search: one `document` row for each thing that can be found, kept by the triggers of its layer and never written
-- directly. Each layer says in a view `<table>_document` what its rows look like here; `findable` (012) is their
-- union. Words are indexed by full text, passages by vectors that are plain rows: no virtual vector table, so that
-- every SQLite tool can read, write and delete.

create table document (
  id integer primary key autoincrement,
  kind text not null,            -- the table of the row it stands for
  row integer not null,          -- and its id there
  namespace integer not null references namespace (id) on delete cascade,
  session integer references session (id) on delete cascade,
  position integer,              -- place in the session: number of the turn or message
  speaker text,
  title text,
  text text not null,
  cjk text,                      -- the text with a space around each character of a script without spaces between words, if any
  external_id text,
  occurred_at text not null,
  status text not null,
  stale integer not null default 0,
  ended_at text,
  expires_at text,
  -- Words by which full text is narrowed to a scope: `scope:n3`, `scope:n3s7`, `scope:n3memory` (turns and messages,
  -- of which there are most, go without the last: 5 bytes each).
  scope text generated always as ('n' || namespace || ' n' || namespace || 's' || coalesce(session, 0)
    || case when kind in ('turn', 'message') then '' else ' n' || namespace || kind end) virtual,
  unique (kind, row)
) strict;

create index document_place on document (namespace, session, position);
create index document_stale on document (namespace) where stale = 1;
create index document_external on document (external_id, kind, session) where external_id is not null;

-- content is in double quotes: Datasette and sqlite-utils find the table by them. Without a table of the documents'
-- lengths (columnsize): 14 bytes a document less to write; `order by bm25()` takes three times as long, 1 ms for 700.
create virtual table document_fts using fts5 (
  text, cjk, scope, content="document", content_rowid="id", columnsize=0, tokenize="porter unicode61 remove_diacritics 2"
);
-- Its leaves fit into a page of the file, which has 2048 bytes.
insert into document_fts (document_fts, rank) values ('pgsz', 2000);

-- The text with spaces around Chinese, Japanese, Korean, Thai, Lao, Burmese and Khmer characters. It is cut into
-- blocks, pieces and characters by ordinals: the plain recursion over substr() is quadratic, since SQLite counts UTF-8
-- characters from the start each time. Each cut is materialized: the planner would else fold the cuts into one another
-- and cut a whole block anew for each letter.
create view document_spaced as
select document.id, (
  with recursive
    block (at, part) as materialized (
      select 1, substr(document.text, 1, 16384)
      union all
      select at + 16384, substr(document.text, at + 16384, 16384) from block where at + 16384 <= length(document.text)
    ),
    step (at) as (select 0 union all select at + 1 from step where at < 127),
    piece (at, part) as materialized (
      select block.at + 128 * step.at, substr(block.part, 1 + 128 * step.at, 128)
      from block cross join step where 128 * step.at < length(block.part)
    ),
    one (at, letter) as (
      select piece.at + step.at, substr(piece.part, 1 + step.at, 1)
      from piece cross join step where step.at < length(piece.part)
    )
  select group_concat(letter, '') from (
    select case when letter glob '[฀-໿က-႟ក-៿⺀-⻿⼀-⿟々-〇぀-ヿㄅ-ㄯ㄰-㆏ㇰ-ㇿ㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ𠀀-𳿿]'
      then ' ' || letter || ' ' else letter end as letter
    from one order by at
  )
) as cjk
from document
where document.text glob '*[฀-໿က-႟ក-៿⺀-⻿⼀-⿟々-〇぀-ヿㄅ-ㄯ㄰-㆏ㇰ-ㇿ㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ𠀀-𳿿]*';

-- Text of one byte a character holds none of them, and most other text (accents, dashes, the dots of a turn's line)
-- nothing of these ranges either: both are seen at once, where the whole pattern would cost more than all the rest of an insert.
create trigger document_insert after insert on document begin
  update document set cjk = (select cjk from document_spaced where id = new.id)
    where id = new.id and (new.cjk is not null or length(cast(new.text as blob)) > length(new.text) and new.text glob '*[฀-៿⺀-𳿿]*')
    and (new.cjk is not null or exists (select 1 from document_spaced where id = new.id));
  insert into document_fts (rowid, text, cjk, scope)
    select id, text, cjk, scope from document where id = new.id;
end;

-- One trigger does all three steps, since SQLite promises no order between two triggers of one event. The inner
-- update changes cjk alone, so it fires nothing, whatever recursive_triggers says.
create trigger document_update after update on document
when new.text is not old.text or new.scope is not old.scope or new.id <> old.id begin
  insert into document_fts (document_fts, rowid, text, cjk, scope)
    values ('delete', old.id, old.text, old.cjk, old.scope);
  update document set cjk = (select cjk from document_spaced where id = new.id)
    where id = new.id and (new.cjk is not null or length(cast(new.text as blob)) > length(new.text) and new.text glob '*[฀-៿⺀-𳿿]*')
    and (new.cjk is not null or exists (select 1 from document_spaced where id = new.id));
  insert into document_fts (rowid, text, cjk, scope)
    select id, text, cjk, scope from document where id = new.id;
  delete from embedding where document = new.id and new.text is not old.text;
end;

create trigger document_delete after delete on document begin
  insert into document_fts (document_fts, rowid, text, cjk, scope)
    values ('delete', old.id, old.text, old.cjk, old.scope);
  delete from embedding where document = old.id;
end;

-- What changed in documents that were there before. Who keeps a part of the search rows in memory asks for what is
-- newer than it knows, and knows new documents by their ids. Ids alone, of the newest 10,000 changes.
create table document_change (
  id integer primary key autoincrement,
  document integer not null
) strict;

create trigger document_changed after update of id, namespace, session, position, speaker, text, occurred_at, status,
  stale, ended_at, expires_at on document begin
  insert into document_change (document) values (old.id);
  insert into document_change (document) select new.id where new.id <> old.id;
  delete from document_change where id <= (select max(id) from document_change) - 10000;
end;

create trigger document_removed after delete on document begin
  insert into document_change (document) values (old.id);
  delete from document_change where id <= (select max(id) from document_change) - 10000;
end;

create table tag (
  kind text not null,
  row integer not null,
  tag text not null check (tag <> ''),
  primary key (kind, row, tag)
) strict, without rowid;

create index tag_tag on tag (tag, kind, row);

-- What a row was made from, where it is not told by a column or a range (see the view `provenance`).
create table source (
  kind text not null,
  row integer not null,
  source_kind text not null,
  source_row integer not null,
  role text not null default 'from' check (role in ('from', 'merged_from', 'mentioned_in')),
  primary key (kind, row, source_kind, source_row, role)
) strict, without rowid;

create index source_source on source (source_kind, source_row);

-- The models whose vectors the file holds. int8 values times `scale` are the components: one scale for all vectors
-- of a model, since scales per vector would cost a third of the recall.
create table embedding_model (
  id integer primary key autoincrement,
  name text not null,
  dimension integer not null check (dimension > 0),
  scale real not null check (scale > 0),
  created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  unique (name, dimension)
) strict;

-- A vector of a passage (characters start … start + length - 1 of the text, counted from 0).
create table embedding (
  document integer not null references document (id) on delete cascade,
  model integer not null references embedding_model (id) on delete cascade,
  part integer not null default 0,
  start integer not null default 0,
  length integer not null,
  vector blob not null,          -- int8, `dimension` bytes
  primary key (document, model, part)
) strict, without rowid;
