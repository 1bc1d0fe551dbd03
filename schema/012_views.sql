-- What crosses the layers: what search must hold, what goes when a session goes, and the views that are the stable
-- surface of the file (schema/README.md has a query to paste for each).

-- Every row that can be found, as its search row must be: `document` is a copy of this.
create view findable as
select * from turn_document
union all select * from atom_document
union all select * from episode_document
union all select * from profile_document
union all select * from message_document
union all select * from memory_document
union all select * from observation_document
union all select * from reflection_document
union all select * from file_document  -- 013
union all select * from item_document;

-- An edit of a search row is an edit of the row it stands for: that row is changed, its triggers bring the new text
-- here, and the edit itself has nothing left to do.
create trigger document_edited before update of text on document
when new.text is not old.text and exists (
  select 1 from findable where kind = new.kind and row = new.row and text is not new.text) begin
  update turn set text = new.text where new.kind = 'turn' and id = new.row;
  update atom set content = new.text where new.kind = 'atom' and id = new.row;
  update episode set narrative = new.text where new.kind = 'episode' and id = new.row;
  update profile set text = new.text where new.kind = 'profile' and id = new.row;
  update message set content = new.text where new.kind = 'message' and id = new.row;
  update memory set text = new.text where new.kind = 'memory' and id = new.row;
  update observation set text = new.text where new.kind = 'observation' and id = new.row;
  update reflection set text = new.text where new.kind = 'reflection' and id = new.row;
  update file set text = new.text where new.kind = 'file' and id = new.row;
  update item set text = new.text where new.kind = 'item' and id = new.row;
  select raise(ignore);
end;

-- A search row that is deleted while its row is still there comes back: writing the row once more makes it.
create trigger document_missed after delete on document
when exists (select 1 from findable where kind = old.kind and row = old.row) begin
  update turn set text = text where old.kind = 'turn' and id = old.row;
  update atom set content = content where old.kind = 'atom' and id = old.row;
  update episode set narrative = narrative where old.kind = 'episode' and id = old.row;
  update profile set text = text where old.kind = 'profile' and id = old.row;
  update message set content = content where old.kind = 'message' and id = old.row;
  update memory set text = text where old.kind = 'memory' and id = old.row;
  update observation set text = text where old.kind = 'observation' and id = old.row;
  update reflection set text = text where old.kind = 'reflection' and id = old.row;
  update file set text = text where old.kind = 'file' and id = old.row;
  update item set value = value where old.kind = 'item' and id = old.row;
end;

create trigger document_gone after delete on document
when not exists (select 1 from findable where kind = old.kind and row = old.row) begin
  delete from tag where kind = old.kind and row = old.row;
  delete from source where kind = old.kind and row = old.row;
  delete from source where source_kind = old.kind and source_row = old.row;
  delete from recall_hit where kind = old.kind and row = old.row;
end;

-- By kind, not by `findable`: each insert pays for it, and only one of its arms can hold the row.
create trigger document_unfounded before insert on document
when case new.kind
  when 'turn' then not exists (select 1 from turn_document where row = new.row)
  when 'atom' then not exists (select 1 from atom_document where row = new.row)
  when 'episode' then not exists (select 1 from episode_document where row = new.row)
  when 'profile' then not exists (select 1 from profile_document where row = new.row)
  when 'message' then not exists (select 1 from message_document where row = new.row)
  when 'memory' then not exists (select 1 from memory_document where row = new.row)
  when 'observation' then not exists (select 1 from observation_document where row = new.row)
  when 'reflection' then not exists (select 1 from reflection_document where row = new.row)
  when 'file' then not exists (select 1 from file_document where row = new.row)
  when 'item' then not exists (select 1 from item_document where row = new.row)
  else 0 end begin
  select raise(abort, 'a document stands for a row of the table that its kind names: write that row, the document follows');
end;

-- Before, not after: what rests on others goes first, and while its session is there to say what its search row is.
create trigger session_delete before delete on session begin
  delete from profile where session = old.id;
  delete from episode where session = old.id;
  delete from atom where session = old.id;
  delete from turn where session = old.id;
  delete from reflection where session = old.id;
  delete from observation where session = old.id;
  delete from exchange where session = old.id;
  delete from message where session = old.id;
  delete from recall where session = old.id;
  delete from task where session = old.id;
  delete from model_call where session = old.id;
  delete from setting where session = old.id;
end;

create trigger namespace_delete before delete on namespace begin
  delete from session where namespace = old.id;
  delete from profile where namespace = old.id;
  delete from memory where namespace = old.id;
  delete from file where namespace = old.id;
  delete from folder where namespace = old.id;
  delete from item where namespace = old.id;
  delete from recall where namespace = old.id;
  delete from task where namespace = old.id;
  delete from model_call where namespace = old.id;
  delete from tombstone where namespace = old.id;
  delete from setting where namespace = old.id;
end;

-- A name or an owner that is changed by hand: writing the rows once more brings their search rows along.
create trigger session_renamed after update of name, namespace on session
when new.name is not old.name or new.namespace is not old.namespace begin
  update turn set text = text where session = new.id;
  update atom set content = content where session = new.id;
  update episode set narrative = narrative where session = new.id;
  update profile set text = text where session = new.id;
  update message set content = content where session = new.id;
  update observation set text = text where session = new.id;
  update reflection set text = text where session = new.id;
end;

-- A shell's `replace` by name would put a new row, with a new id, in the place of one that others refer to.
create trigger namespace_known before insert on namespace
when exists (select 1 from namespace where name = new.name) begin
  select raise(ignore);
end;

create trigger session_known before insert on session
when exists (select 1 from session where namespace = new.namespace and name = new.name and kind = new.kind) begin
  select raise(ignore);
end;

-- By id it keeps the id but fires no update. (Asked by what the tables are indexed by: `document` is not, by session.)
create trigger session_replaced after insert on session
when exists (select 1 from message where session = new.id) or exists (select 1 from observation where session = new.id)
  or exists (select 1 from reflection where session = new.id) begin
  update message set content = content where session = new.id;
  update observation set text = text where session = new.id;
  update reflection set text = text where session = new.id;
end;

create trigger setting_kept before delete on setting
when old.key in ('format', 'schema_version') and old.namespace = 0 and old.session = 0 begin
  select raise(ignore);
end;

create trigger emotion_felt before delete on emotion when exists (select 1 from memory where emotion = old.name) begin
  select raise(abort, 'there are memories of this emotion');
end;

-- An exchange has no search row of its own that would take these along.
create trigger exchange_links_gone after delete on exchange begin
  delete from tag where kind = 'exchange' and row = old.id;
  delete from source where kind = 'exchange' and row = old.id;
  delete from source where source_kind = 'exchange' and source_row = old.id;
  delete from recall_hit where kind = 'exchange' and row = old.id;
end;

-- Search rows follow: what is written into them by hand would be undone by the next write of the row.
create trigger document_follows before update of kind, row, namespace, session, position, speaker, title, external_id,
  occurred_at, status, stale, ended_at, expires_at on document
when (new.kind in ('turn', 'atom', 'episode', 'profile', 'message', 'memory', 'observation', 'reflection', 'file', 'item')
    or old.kind in ('turn', 'atom', 'episode', 'profile', 'message', 'memory', 'observation', 'reflection', 'file', 'item'))
  and (new.kind, new.namespace, new.session, new.position, new.speaker, new.title, new.external_id, new.occurred_at,
    new.status, new.stale, new.ended_at, new.expires_at)
  is not (old.kind, old.namespace, old.session, old.position, old.speaker, old.title, old.external_id, old.occurred_at,
    old.status, old.stale, old.ended_at, old.expires_at)
  and not exists (select 1 from findable where kind = new.kind and row = new.row
    and (namespace, session, position, speaker, title, external_id, occurred_at, status, stale, ended_at, expires_at)
    is (new.namespace, new.session, new.position, new.speaker, new.title, new.external_id, new.occurred_at,
      new.status, new.stale, new.ended_at, new.expires_at)) begin
  select raise(abort, 'a document follows the row that it stands for: change that row');
end;

create trigger document_stays before update of row on document
when new.row <> old.row and exists (select 1 from findable where kind = old.kind and row = old.row) begin
  select raise(abort, 'a document follows the row that it stands for: change that row');
end;

create trigger document_spaced_follows before update of cjk on document
when new.cjk is not old.cjk and replace(coalesce(new.cjk, ''), ' ', '') <> case
  when new.text glob '*[฀-໿က-႟ក-៿⺀-⻿⼀-⿟々-〇぀-ヿㄅ-ㄯ㄰-㆏ㇰ-ㇿ㐀-䶿一-鿿가-힯豈-﫿ｦ-ﾟ𠀀-𳿿]*' then replace(new.text, ' ', '') else '' end begin
  select raise(abort, 'a document follows the row that it stands for: change that row');
end;

-- A search row is there once, and stays. Documents of a host's own kinds may be replaced: not without their delete
-- trigger, which clears the full text.
create trigger document_known before insert on document
when exists (select 1 from document where id = new.id or (kind = new.kind and row = new.row)) begin
  select raise(ignore) where exists (select 1 from document where kind = new.kind and row = new.row)
    and exists (select 1 from findable where kind = new.kind and row = new.row);
  delete from document where id = new.id or (kind = new.kind and row = new.row);
end;

create trigger embedding_model_known before insert on embedding_model
when exists (select 1 from embedding_model where name = new.name and dimension = new.dimension) begin
  select raise(ignore);
end;

create trigger embedding_model_gone after delete on embedding_model begin
  delete from embedding where model = old.id;
end;

create trigger embedding_model_changed after update of name, dimension on embedding_model
when new.name is not old.name or new.dimension <> old.dimension begin
  delete from embedding where model = new.id;
end;

-- Ids that are changed by hand: what names the row by its id follows.
create trigger document_row_moved after update of row on document when new.row <> old.row begin
  update tag set row = new.row where kind = new.kind and row = old.row;
  update source set row = new.row where kind = new.kind and row = old.row;
  update source set source_row = new.row where source_kind = new.kind and source_row = old.row;
  update recall_hit set row = new.row where kind = new.kind and row = old.row;
end;

create trigger document_moved after update of id on document when new.id <> old.id begin
  update embedding set document = new.id where document = old.id;
end;

create trigger embedding_model_moved after update of id on embedding_model when new.id <> old.id begin
  update embedding set model = new.id where model = old.id;
end;

create trigger namespace_moved after update of id on namespace when new.id <> old.id begin
  update session set namespace = new.id where namespace = old.id;
  update profile set namespace = new.id where namespace = old.id;
  update memory set namespace = new.id where namespace = old.id;
  update memory_key set namespace = new.id where namespace = old.id;
  update file set namespace = new.id where namespace = old.id;
  update folder set namespace = new.id where namespace = old.id;
  update item set namespace = new.id where namespace = old.id;
  update recall set namespace = new.id where namespace = old.id;
  update task set namespace = new.id where namespace = old.id;
  update model_call set namespace = new.id where namespace = old.id;
  update tombstone set namespace = new.id where namespace = old.id;
  update setting set namespace = new.id where namespace = old.id;
end;

create trigger session_moved after update of id on session when new.id <> old.id begin
  update turn set session = new.id where session = old.id;
  update atom set session = new.id where session = old.id;
  update episode set session = new.id where session = old.id;
  update profile set session = new.id where session = old.id;
  update message set session = new.id where session = old.id;
  update exchange set session = new.id where session = old.id;
  update observation set session = new.id where session = old.id;
  update reflection set session = new.id where session = old.id;
  update recall set session = new.id where session = old.id;
  update task set session = new.id where session = old.id;
  update model_call set session = new.id where session = old.id;
  update setting set session = new.id where session = old.id;
end;

create trigger task_moved after update of id on task when new.id <> old.id begin
  update model_call set task = new.id where task = old.id;
end;

create trigger episode_moved after update of id on episode when new.id <> old.id begin
  update episode_history set episode = new.id where episode = old.id;
end;

create trigger profile_moved after update of id on profile when new.id <> old.id begin
  update profile_rule set profile = new.id where profile = old.id;
end;

create trigger message_moved after update of id on message when new.id <> old.id begin
  update exchange set prompt = new.id where prompt = old.id;
  update exchange set response = new.id where response = old.id;
end;

create trigger exchange_moved after update of id on exchange when new.id <> old.id begin
  update tag set row = new.id where kind = 'exchange' and row = old.id;
  update source set row = new.id where kind = 'exchange' and row = old.id;
  update source set source_row = new.id where source_kind = 'exchange' and source_row = old.id;
  update recall_hit set row = new.id where kind = 'exchange' and row = old.id;
end;

create trigger memory_moved after update of id on memory when new.id <> old.id begin
  update memory_key set memory = new.id where memory = old.id;
end;

create trigger recall_moved after update of id on recall when new.id <> old.id begin
  update recall_hit set recall = new.id where recall = old.id;
end;

-- A time that is edited by hand into another form is brought to the stored one, as at insert: text order is time order.
create trigger turn_retimed after update of occurred_at on turn
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update turn set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger atom_retimed after update of occurred_at on atom
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update atom set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger episode_retimed after update of occurred_at on episode
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update episode set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger profile_retimed after update of occurred_at on profile
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update profile set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger message_retimed after update of occurred_at on message
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update message set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger exchange_retimed after update of occurred_at on exchange
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update exchange set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger memory_retimed after update of occurred_at on memory
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update memory set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger observation_retimed after update of occurred_at on observation
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update observation set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

create trigger reflection_retimed after update of occurred_at on reflection
when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update reflection set occurred_at = strftime('%Y-%m-%dT%H:%M:%fZ', new.occurred_at) where id = new.id;
end;

-- The one dated table whose insert writes no search row, and so does not write the row once more.
create trigger exchange_timed after insert on exchange when new.occurred_at not glob '????-??-??T??:??:??.???Z' begin
  update exchange set occurred_at = new.occurred_at where id = new.id;
end;

-- ---------------------------------------------------------------------------------------------------------------
-- The stable surface.

create view about as
select 'namespace' as name, 'whose memory it is' as what, (select count(*) from namespace) as rows
union all select 'session', 'runs of agents, and conversations', (select count(*) from session)
union all select 'turn', 'L0: what an agent saw, did and gained at each step', (select count(*) from turn)
union all select 'atom', 'L1: what stood out, under a cap with eviction', (select count(*) from atom)
union all select 'episode', 'L2: what a stretch of turns amounted to', (select count(*) from episode)
union all select 'profile', 'L3: what a run taught for the next one', (select count(*) from profile)
union all select 'message', 'what was said, in order', (select count(*) from message)
union all select 'exchange', 'a prompt and its response', (select count(*) from exchange)
union all select 'memory', 'statements worth keeping, fading with time', (select count(*) from memory)
union all select 'observation', 'a log that stands for older messages', (select count(*) from observation)
union all select 'reflection', 'the log, condensed', (select count(*) from reflection)
union all select 'file', 'files of a model''s memory folder, with all their versions', (select count(*) from file)
union all select 'item', 'values that other programs keep under a key', (select count(*) from item)
union all select 'document', 'everything that can be found: select rowid, text from document_fts where document_fts match ''word''',
  (select count(*) from document)
union all select 'embedding', 'vectors of passages', (select count(*) from embedding)
union all select 'task', 'work of the model: due, claimed, failed, done', (select count(*) from task)
union all select 'model_call', 'each call of the model and its cost', (select count(*) from model_call)
union all select 'recall', 'what went into a prompt', (select count(*) from recall)
union all select 'memory_strength', 'view: how much of each live memory is left now', null
union all select 'timeline', 'view: all that happened in a session, in order', null
union all select 'provenance', 'view: any row, and the rows it was made from', null
union all select 'recall_trail', 'view: what went to a prompt when, and with which scores', null
union all select 'due_work', 'view: what waits for the model, and why', null
union all select 'next_evictions', 'view: the atoms of each run in the order in which they will go', null
union all select 'message_stage', 'view: where each message is: raw, buffered, active, reflected', null
union all select 'observation_state', 'view: of each conversation what is raw, observed, waiting, and how much smaller', null
union all select 'model_calls_by_day', 'view: calls, tokens and failures by day', null;

-- Age counts from the last access, a future date as age 0; beyond 700 the exponent is held, since exp() would be 0
-- there and the order lost. Some builds of SQLite lack exp(): the library brings it on its own connections.
create view memory_strength as
select id, namespace, text, importance, emotion, emotional_weight, stability, access_count, age_days, decay,
  decay * importance * emotional_weight as strength
from (
  select *, exp(-min(age_days / max(stability, 0.1), 700.0)) as decay
  from (
    select memory.id, namespace.name as namespace, memory.text, memory.importance, memory.emotion,
      coalesce(emotion.weight, 1.0) as emotional_weight, memory.stability, memory.access_count,
      max(0.0, round((julianday('now') - julianday(coalesce(memory.last_accessed_at, memory.occurred_at)))
        * 86400000.0) / 86400000.0) as age_days  -- whole milliseconds: Julian days alone are good to some 40 µs
    from memory join namespace on namespace.id = memory.namespace left join emotion on emotion.name = memory.emotion
    where memory.status = 'active' and memory.stale = 0
      and (memory.expires_at is null or memory.expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))));

create view timeline as
select session.name as session, namespace.name as namespace, it.occurred_at, it.kind, it.id, it.title, it.text, it.status
from (
  select session, occurred_at, 'turn' as kind, id, 'T' || turn as title, text, 'active' as status, 1 as place from turn
  union all
  select session, occurred_at, 'message', id, coalesce(speaker, role), content, 'active', 1 from message
  union all
  select session, occurred_at, 'atom', id, type, content, status, 2 from atom
  union all
  select session, occurred_at, 'episode', id, name, narrative, status, 3 from episode
  union all
  select session, occurred_at, 'profile', id, profile_id, text, status, 4 from profile
  union all
  select session, occurred_at, 'observation', id, stage, text, status, 3 from observation
  union all
  select session, occurred_at, 'reflection', id, 'generation ' || generation, text, status, 4 from reflection
) as it join session on session.id = it.session join namespace on namespace.id = session.namespace
order by it.session, it.occurred_at, it.place, it.id;

create view provenance as
select kind, row as id, role, source_kind, source_row as source_id from source
union all
select 'atom', atom.id, 'from', 'turn', turn.id
from atom join turn on turn.session = atom.session and turn.turn = atom.turn
union all
select 'episode', episode.id, 'from', 'turn', turn.id
from episode join turn on turn.session = episode.session and turn.turn between episode.turn_start and episode.turn_end
union all
select 'episode', episode.id, 'from', 'atom', atom.id
from episode join atom on atom.session = episode.session and atom.turn between episode.turn_start and episode.turn_end
union all
select 'profile', profile.id, 'from', 'episode', episode.id
from profile join episode on episode.session = profile.session
union all
select 'exchange', id, 'from', 'message', prompt from exchange
union all
select 'exchange', id, 'from', 'message', response from exchange
union all
select 'observation', observation.id, 'from', 'message', message.id
from observation join message on message.session = observation.session
  and message.id between observation.first_message and observation.last_message
union all
select 'reflection', reflection.id, 'from', 'observation', observation.id
from reflection join observation on observation.session = reflection.session
  and observation.id between reflection.first_observation and reflection.last_observation;

create view recall_trail as
select recall.id as recall, namespace.name as namespace, session.name as session, recall.via, recall.recalled_at,
  recall.query, recall_hit.rank, recall_hit.kind, recall_hit.row as id, recall_hit.score, recall_hit.similarity,
  recall_hit.decay, document.text
from recall join namespace on namespace.id = recall.namespace left join session on session.id = recall.session
  left join recall_hit on recall_hit.recall = recall.id
  left join document on document.kind = recall_hit.kind and document.row = recall_hit.row
order by recall.id desc, recall_hit.rank;

create view due_work as
select task.purpose, namespace.name as namespace, session.name as session, task.first, task.last, task.state,
  task.attempts, task.next_try_at,
  case task.state when 'due' then 'waits for its first try'
    when 'claimed' then 'under way until ' || task.claimed_until
    else 'failed: ' || coalesce(task.last_error, 'no reason kept') end as why
from task join namespace on namespace.id = task.namespace left join session on session.id = task.session
where task.state <> 'done'
union all
select 'embed', namespace.name, null, min(document.id), max(document.id), 'due', 0, null,
  count(*) || ' documents without a vector'
from document join namespace on namespace.id = document.namespace
where exists (select 1 from embedding_model)
  and not exists (select 1 from embedding where embedding.document = document.id)
group by document.namespace
union all
select 'redo', namespace.name, session.name, document.row, document.row, 'due', 0, null,
  document.kind || ' ' || document.row || ' rests on something that was changed or forgotten'
from document join namespace on namespace.id = document.namespace left join session on session.id = document.session
where document.stale = 1 and document.status = 'active';

create view next_evictions as
select namespace.name as namespace, session.name as session,
  row_number() over (partition by atom.session order by atom.priority, atom.turn, atom.id) as place,
  atom.id, atom.turn, atom.type, atom.priority, atom.content,
  atom_cap.cap - count(*) over (partition by atom.session) as room
from atom join session on session.id = atom.session join namespace on namespace.id = session.namespace
  join atom_cap on atom_cap.session = atom.session
where atom.status = 'active'
order by atom.session, place;

create view model_calls_by_day as
select substr(called_at, 1, 10) as day, purpose, count(*) as calls, sum(outcome = 'ok') as ok,
  sum(outcome not in ('ok', 'empty')) as failed, coalesce(sum(tokens_in), 0) as tokens_in,
  coalesce(sum(tokens_out), 0) as tokens_out, round(sum(seconds), 3) as seconds
from model_call group by day, purpose order by day, purpose;
