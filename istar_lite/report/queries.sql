-- What the page reads, each query by its name. Every one is bound to one namespace (:namespace, exact) and brings
-- what is worth most first, so that a page with little room shows the best part. `cross join` and `+` keep SQLite from
-- going through the whole namespace once for each row that is looked up.

-- name: now
select strftime('%Y-%m-%dT%H:%M:%fZ', 'now') as now;

-- name: counts
-- Everything that can be found, by kind and fate; past its expires_at a row is expired, whatever its status.
select kind, case when expires_at <= :now then 'expired' when status = 'active' and stale = 1 then 'stale' else status end
  as status, count(*) as rows, sum(length(text)) as characters
from document where namespace = (select id from namespace where name = :namespace)
group by 1, 2;

-- name: known memory
select count(*) over () as total, memory_strength.id, importance, emotion, emotional_weight, stability, access_count, age_days, decay, strength,
  (select last_accessed_at from memory where memory.id = memory_strength.id) as last_accessed_at,
  (select mention_count from memory where memory.id = memory_strength.id) as mention_count
from memory_strength where namespace = :namespace
order by strength desc, age_days, id desc limit :limit;

-- name: known atom
select count(*) over () as total, next_evictions.id, next_evictions.turn, next_evictions.type, next_evictions.priority, place, room
from next_evictions join atom on atom.id = next_evictions.id
where namespace = :namespace and atom.stale = 0
order by next_evictions.priority desc, next_evictions.id desc limit :limit;

-- name: known profile
select count(*) over () as total, profile.id, profile.profile_id, profile.turn_end,
  (select json_group_array(json_object('if', condition, 'then', action, 'turns', json(cited_turns)))
    from profile_rule where profile_rule.profile = profile.id) as rules
from profile where namespace = (select id from namespace where name = :namespace) and status = 'active' and stale = 0
order by profile.id desc limit :limit;

-- name: known episode
select count(*) over () as total, episode.id, episode.name, turn_start, turn_end, heat,
  (select count(*) from episode_history where episode_history.episode = episode.id) as versions
from episode join session on session.id = episode.session
where session.namespace = (select id from namespace where name = :namespace) and status = 'active' and stale = 0
order by episode.id desc limit :limit;

-- name: known reflection
select count(*) over () as total, reflection.id, generation, level, tokens_before, tokens_after
from reflection join session on session.id = reflection.session
where session.namespace = (select id from namespace where name = :namespace) and status = 'active' and stale = 0
  and stage = 'active'
order by reflection.id desc limit :limit;

-- name: known observation
select count(*) over () as total, observation.id, stage, tokens_observed, tokens, current_task
from observation join session on session.id = observation.session
where session.namespace = (select id from namespace where name = :namespace) and status = 'active' and stale = 0
  and stage <> 'reflected'
order by observation.id desc limit :limit;

-- name: known file
select count(*) over () as total, id, change from file
where namespace = (select id from namespace where name = :namespace) and status = 'active' and stale = 0
order by id desc limit :limit;

-- name: known item
select count(*) over () as total, id, updated_at from item
where namespace = (select id from namespace where name = :namespace) and (expires_at is null or expires_at > :now)
order by updated_at desc, id desc limit :limit;

-- name: ended
select ended.kind, ended.id, ended.ended_by
from (
  select 'memory' as kind, id, ended_by from memory where status <> 'active'
  union all select 'atom', id, ended_by from atom where status <> 'active'
  union all select 'episode', id, ended_by from episode where status <> 'active'
  union all select 'profile', id, ended_by from profile where status <> 'active'
  union all select 'observation', id, ended_by from observation where status <> 'active'
  union all select 'reflection', id, ended_by from reflection where status <> 'active'
  union all select 'file', id, ended_by from file where status <> 'active'
) as ended cross join document on document.kind = ended.kind and document.row = ended.id
where +document.namespace = (select id from namespace where name = :namespace)
order by document.ended_at desc, document.id desc limit :limit;

-- name: atoms ended
select id, turn, type, priority, ended_by from atom where id in (select value from json_each(:ids));

-- name: rows
-- The rows of :keys ([["memory", 1], …]), in that order.
select document.kind, document.row as id, title, text, length(text) as characters, occurred_at as at,
  session.name as session, session.kind as session_kind, speaker, position, document.status,
  nullif(stale, 0) as stale, ended_at, expires_at
from json_each(:keys) as wanted
  cross join document on document.kind = json_extract(wanted.value, '$[0]') and document.row = json_extract(wanted.value, '$[1]')
  left join session on session.id = document.session
where +document.namespace = (select id from namespace where name = :namespace)
order by wanted.key;

-- name: exchanges
-- Exchanges can not be found themselves (their messages can), so they have no document.
select 'exchange' as kind, exchange.id, occurred_at as at, session.name as session, session.kind as session_kind,
  exchange.status, ended_at, ended_by
from json_each(:keys) as wanted
  join exchange on json_extract(wanted.value, '$[0]') = 'exchange' and exchange.id = json_extract(wanted.value, '$[1]')
  join session on session.id = exchange.session
where session.namespace = (select id from namespace where name = :namespace);

-- name: sources
select id, role, source_kind, source_id from provenance
where kind = :kind and id in (select value from json_each(:ids))
order by id, role, source_kind, source_id;

-- name: tags
select row as id, tag from tag where kind = 'memory' and row in (select value from json_each(:ids)) order by row, tag;

-- name: returns
-- When memories were handed out and what was left of them just before, as far as the trail goes back.
select recall_trail.id, recalled_at as at, via, decay from recall_trail
where kind = 'memory' and namespace = :namespace and via in ('retrieve', 'context')
  and id in (select value from json_each(:ids))
order by recall_trail.id, recalled_at;

-- name: recalls
select recall, via, recalled_at as at, session, query, json_group_array(kind || '-' || id) filter (where kind is not null) as hits
from recall_trail where namespace = :namespace group by recall order by recall desc limit :limit;

-- name: sessions
select session.name, session.kind, session.id as session, count(*) as rows, min(occurred_at) as first_at,
  max(occurred_at) as last_at
from document join session on session.id = document.session
where document.namespace = (select id from namespace where name = :namespace) and document.kind in ('turn', 'message')
group by session.id order by last_at desc, session.id desc;

-- name: turns
select id, turn, reward, reward_unit from turn where session = :session order by turn desc limit :limit;

-- name: messages
select id, position, role, coalesce(tokens, (length(content) + 3) / 4) as tokens
from message where session = :session order by id desc limit :limit;

-- name: atoms
select atom.id, atom.turn, atom.priority, atom.status, nullif(atom.stale, 0) as stale, by.turn as ended_turn
from atom left join atom as by on by.session = atom.session and by.id = case when atom.ended_by glob 'atom *' then cast(substr(atom.ended_by, 6) as integer) end
where atom.session = :session order by atom.turn desc, atom.id desc limit :limit;

-- name: episodes
select id, name, turn_start, turn_end, status, nullif(stale, 0) as stale from episode
where session = :session order by turn_start desc limit :limit;

-- name: profiles
select id, profile_id, turn_end, status from profile where session = :session order by id desc limit :limit;

-- name: observations
select id, first_message, last_message, stage, status, nullif(stale, 0) as stale, tokens_observed, tokens
from observation where session = :session order by id desc limit :limit;

-- name: reflections
select reflection.id, reflection.generation, reflection.status, reflection.tokens_before, reflection.tokens_after,
  min(observation.first_message) as first_message, max(observation.last_message) as last_message
from reflection join observation on observation.session = reflection.session
  and observation.id between reflection.first_observation and reflection.last_observation
where reflection.session = :session group by reflection.id order by reflection.id desc limit :limit;

-- name: layers
select coalesce(session.kind, '') as session_kind, document.kind, count(*) as rows, sum(length(text)) as characters,
  sum(document.status = 'active' and stale = 0 and (expires_at is null or expires_at > :now)) as live,
  sum(case when document.status = 'active' and stale = 0 and (expires_at is null or expires_at > :now) then length(text) end)
    as live_characters
from document left join session on session.id = document.session
where document.namespace = (select id from namespace where name = :namespace) group by 1, 2;

-- name: observed
select name, tokens_raw, tokens_buffered, tokens_observed, tokens_log, compression, generation
from observation_state where namespace = :namespace and tokens_observed > 0
order by tokens_observed desc limit :limit;

-- name: forgotten
select kind, substr(forgotten_at, 1, 10) as day, min(forgotten_at) as first_at, max(forgotten_at) as last_at, count(*) as rows
from tombstone where namespace = (select id from namespace where name = :namespace)
group by kind, day order by day desc, kind limit :limit;

-- name: due
select purpose, session, first, last, state, attempts, next_try_at, why from due_work where namespace = :namespace limit :limit;

-- name: calls
-- As the view model_calls_by_day, of one namespace.
select substr(called_at, 1, 10) as day, purpose, count(*) as calls, sum(outcome in ('ok', 'empty')) as ok,
  sum(outcome not in ('ok', 'empty')) as failed, coalesce(sum(tokens_in), 0) as tokens_in,
  coalesce(sum(tokens_out), 0) as tokens_out, round(sum(seconds), 3) as seconds
from model_call where namespace = (select id from namespace where name = :namespace)
group by day, purpose order by day desc, purpose limit :limit;

-- name: vectors
select document.kind, document.row as id, embedding.model, embedding_model.name, embedding.vector
from json_each(:keys) as wanted
  cross join document on document.kind = json_extract(wanted.value, '$[0]') and document.row = json_extract(wanted.value, '$[1]')
  join embedding on embedding.document = document.id and embedding.part = 0
  join embedding_model on embedding_model.id = embedding.model
where +document.namespace = (select id from namespace where name = :namespace);
