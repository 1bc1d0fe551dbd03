-- Cells: for namespaces of more than 100,000 documents, which of their vectors lie near each other. Optional: made and kept up
-- by `work()` and `reembed`, never needed for right results, and safe to delete (`delete from cell`), upon which a
-- search compares all vectors until the cells are made again. What the cells of a namespace cover is the setting
-- `cells:<model>` of that namespace: documents after that, or changed since, are compared one by one.

create table cell (
  id integer primary key autoincrement,
  namespace integer not null references namespace (id) on delete cascade,
  model integer not null references embedding_model (id) on delete cascade,
  centre blob not null           -- the mean direction of its vectors, int8, `dimension` bytes
) strict;

create index cell_place on cell (namespace, model);

-- A vector in its cell, with one bit for each component (above the mean of the centres or not): enough to tell which of
-- some ten thousand vectors are worth reading, in an eighth of their space.
create table cell_member (
  cell integer not null references cell (id) on delete cascade,
  document integer not null references document (id) on delete cascade,
  part integer not null default 0,
  sketch blob not null,          -- `dimension` bits
  primary key (cell, document, part)
) strict, without rowid;

create index cell_member_document on cell_member (document);

create trigger cell_delete after delete on cell begin
  delete from cell_member where cell = old.id;
end;

-- A bit of what a text was about stays nowhere when its vector goes.
create trigger embedding_delete_cells after delete on embedding begin
  delete from cell_member where document = old.document
    and cell in (select id from cell where model = old.model);
end;

create trigger embedding_update_cells after update of vector on embedding when new.vector is not old.vector begin
  delete from cell_member where document = old.document
    and cell in (select id from cell where model = old.model);
end;

create trigger embedding_model_delete_cells after delete on embedding_model begin
  delete from cell where model = old.id;
end;

create trigger namespace_delete_cells after delete on namespace begin
  delete from cell where namespace = old.id;
end;

-- Ids that are changed by hand (see 012): what names the row by its id follows.
create trigger cell_moved after update of id on cell when new.id <> old.id begin
  update cell_member set cell = new.id where cell = old.id;
end;

create trigger namespace_moved_cells after update of id on namespace when new.id <> old.id begin
  update cell set namespace = new.id where namespace = old.id;
end;

create trigger embedding_model_moved_cells after update of id on embedding_model when new.id <> old.id begin
  update cell set model = new.id where model = old.id;
end;

create trigger document_moved_cells after update of id on document when new.id <> old.id begin
  update cell_member set document = new.id where document = old.id;
end;
