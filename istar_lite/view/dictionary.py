"""What Datasette is told about the file, taken from the data dictionary (schema/README.md) so that it is said once."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from istar_lite.migrations import schema_files

# Tables that serve the others; those of full text are hidden by Datasette itself.
INNER = ("document_change", "embedding", "embedding_model", "folder", "item_vector", "memory_key", "episode_history")
FACETS = {
    "document": ["kind", "status"],
    "memory": ["status", "emotion"],
    "atom": ["status", "type"],
    "episode": ["status", "name"],
    "message": ["role", "session"],
    "observation": ["stage", "status"],
    "task": ["purpose", "state"],
    "model_call": ["purpose", "outcome"],
    "recall": ["via"],
    "timeline": ["kind", "session"],
    "provenance": ["kind", "source_kind"],
    "recall_trail": ["via", "kind"],
    "due_work": ["purpose", "state"],
    "message_stage": ["stage", "role"],
}
# What a view is called as a question: a query of the name of its view would stand before the view itself.
ASKED = {
    "about": "What is in this file?",
    "memory_strength": "What is strongest in memory now?",
    "timeline": "What happened, in order?",
    "provenance": "What were memories and atoms made from?",
    "recall_trail": "What went into a prompt, and why?",
    "due_work": "What waits for the model?",
    "next_evictions": "Which atoms will go next?",
    "message_stage": "How far has each message come?",
    "observation_state": "How much smaller is the log?",
    "model_calls_by_day": "What did the model cost?",
}

# Every row that a row was made from, down to what was said and done. `union` (not `union all`) ends circles.
SOURCES = """
with recursive way (kind, id, step) as (
  select :kind, cast(:id as integer), 0
  union
  select provenance.source_kind, provenance.source_id, way.step + 1
  from way join provenance on provenance.kind = way.kind and provenance.id = way.id where way.step < 6
)
select min(way.step) as step, way.kind, way.id, document.occurred_at, document.speaker, document.text
from way left join document on document.kind = way.kind and document.row = way.id
group by way.kind, way.id order by step, way.kind, way.id limit 500
""".strip()


@cache
def sections() -> dict[str, str]:
    """Name of a table or view → what the data dictionary says of it."""
    page = (schema_files()[0][1].parent / "README.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, flags=re.MULTILINE | re.DOTALL))


def description(section: str) -> str:
    """What a section says, on one line, without the list of columns (which Datasette shows) and the query."""
    said = re.sub(r"```.*?```", "", section, flags=re.DOTALL)
    listed = re.match(r"(?:`\w+`[\s,]*(?:and )?(?:\([^()]*\))?[\s,]*)+:", said)
    lead = said.partition("`")[0].rstrip()
    told = said[listed.end() :] if listed else lead if lead.endswith(".") else said
    return " ".join(told.replace("`", "").split())


def columns(section: str) -> dict[str, str]:
    """Column → what is said of it in brackets or after a colon: `stability` (days) → days."""
    return {name: " ".join(said.split()) for name, said in re.findall(r"`(\w+)` \(([^()]+)\)", section)}


def metadata(database: str) -> dict[str, Any]:
    """What describes the file, its tables and their columns."""
    tables = {
        name: {"description": description(section), "columns": columns(section)} for name, section in sections().items()
    }
    return {
        "title": "Memory of an agent",
        "description": "What the agent was told and did, and what it made of it. Start with the view about.",
        "databases": {database: {"tables": tables}},
    }


def configuration(database: str) -> dict[str, Any]:
    """How tables look, and the questions."""
    tables: dict[str, dict[str, Any]] = {name: {"facets": facets} for name, facets in FACETS.items()}
    tables |= {name: {"hidden": True} for name in INNER}
    tables["document"] |= {"sort_desc": "id"}
    return {"databases": {database: {"tables": tables, "queries": questions()}}}


def questions() -> dict[str, dict[str, str]]:
    """A canned query for every view, as the data dictionary asks it, and the way down from any row."""
    asked = {
        f"{name.replace('_', '-')}-now": {
            "title": ASKED.get(name, name),
            "description": description(section),
            "sql": found[1].strip().rstrip(";"),
        }
        for name, section in sections().items()
        if (found := re.search(r"```sql\n(.*?)```", section, re.DOTALL))
    }
    way = {
        "title": "Where does a row come from?",
        "description": "Every row that it was made from, step by step. kind: memory, atom, episode …; id: its id.",
        "sql": SOURCES,
    }
    return {**asked, "sources": way}
