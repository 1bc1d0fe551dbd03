-- Plain SQL on a memory, in any SQLite tool, without an extension:
--
--   istar-lite demo demo.db && sqlite3 -box demo.db < examples/plain_sql.sql
--
-- It ends in a rollback: run it as often as you like.

begin;

-- 1. What is in here?
select name, what, rows from about where rows > 0;

-- 2. Which turns cost the most?
select session.name as run, turn.turn, turn.reward, turn.text
from turn join session on session.id = turn.session order by turn.reward limit 5;

-- 3. What did each event bring on average? (events is a JSON list)
select event.value as event, count(*) as turns, round(avg(turn.reward)) as reward
from turn, json_each(turn.events) as event where event.type = 'text' group by event.value order by reward;

-- 4. What did the model make of each stretch of a run, and how often did it go into a prompt?
select session.name as run, episode.name, turn_start, turn_end, heat, narrative
from episode join session on session.id = episode.session order by session.id, turn_start;

-- 5. Which lessons start the next run?
select profile.profile_id, condition, action, cited_turns
from profile_rule join profile on profile.id = profile_rule.profile where profile.status = 'active';

-- 6. What leaves the working set next, and how much room is left?
select session, place, priority, content, room from next_evictions where place <= 3;

-- 7. What was evicted, when, and by what?
select content, priority, ended_at, ended_by from atom where status = 'evicted' order by ended_at limit 5;

-- 8. Where is a word, in whatever kind of row?
select document.kind, document.title, document.text
from document_fts join document on document.id = document_fts.rowid
where document_fts match 'heat_wave' order by bm25(document_fts) limit 5;

-- 9. What did the model cost?
select * from model_calls_by_day;

-- 10. A memory by hand, found at once. A cap by hand, obeyed at once.
insert into memory (text, importance) values ('The maintenance window is on Sunday', 0.9);
select kind, text from document where id in (
  select rowid from document_fts where document_fts match 'maintenance');
insert into setting (key, session, value) select 'max_atoms', id, 5 from session where kind = 'run' limit 1
  on conflict do update set value = excluded.value;
select session.name as run, atom.status, count(*) as atoms
from atom join session on session.id = atom.session group by session.id, atom.status;

rollback;
