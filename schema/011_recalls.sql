-- The trail: what went into a prompt, when, for which query, with which scores. Not what a plain search returned.

create table recall (
  id integer primary key autoincrement,
  namespace integer not null default 1 references namespace (id) on delete cascade,
  session integer references session (id) on delete cascade,
  via text not null check (via in ('retrieve', 'context', 'memory_block', 'observation', 'recall_tool')),
  query text,                    -- cut to 200 characters
  recalled_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) strict;

create index recall_namespace on recall (namespace, id);
create index recall_session on recall (session, id);

create table recall_hit (
  recall integer not null references recall (id) on delete cascade,
  rank integer not null,
  kind text not null,
  row integer not null,
  score real,
  similarity real,
  decay real,
  primary key (recall, rank)
) strict, without rowid;

create index recall_hit_row on recall_hit (kind, row);

create trigger recall_insert after insert on recall begin
  delete from recall where namespace = new.namespace and id in (
    select id from recall where namespace = new.namespace order by id desc
    limit -1 offset (select max(1, cast(coalesce(
      (select value from setting where key = 'max_recalls' and namespace = new.namespace and session = 0),
      (select value from setting where key = 'max_recalls' and namespace = 0 and session = 0), 1000) as integer))));
end;

create trigger recall_delete after delete on recall begin
  delete from recall_hit where recall = old.id;
end;
