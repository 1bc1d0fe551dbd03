// One row: what it says, what is known of it, and the way back to what was said or done, step by step.
const dialog = byId("detail");
let opener = null, before = "";

const FACTS = [
  ["at", "happened", (row) => time(row.at)], ["session", "in", (row) => `${row.session_kind === "run" ? "run" : "conversation"} ${row.session}`],
  ["speaker", "said by", (row) => row.speaker], ["decay", "left of it", (row) => `${percent(row.decay)}, fading from ${days(row.age_days)} ago`],
  ["strength", "strength", (row) => `${row.strength.toFixed(3)} = ${row.decay.toFixed(3)} left × importance ${row.importance} × ${row.emotion} ${row.emotional_weight}`],
  ["stability", "stability", (row) => `${row.stability.toFixed(1)} days`],
  ["access_count", "handed out", (row) => (row.access_count ? `${plural(row.access_count, "time")}${row.last_accessed_at ? `, last ${told(row.last_accessed_at)}` : ""}` : "never")],
  ["mention_count", "told", (row) => plural(row.mention_count, "time")], ["tags", "tags", (row) => row.tags.map((tag) => [h("span", { class: "tag" }, tag), " "])],
  ["priority", "priority", (row) => `${row.priority} of 100`], ["place", "eviction", (row) => (row.room > 0 ? `room for ${row.room} more` : row.place === 1 ? "the next to go" : `${row.place - 1} would go before it`)],
  ["turn_start", "turns", (row) => `T${row.turn_start} to T${row.turn_end}`], ["heat", "handed out", (row) => plural(row.heat, "time")],
  ["versions", "told before", (row) => (row.versions ? plural(row.versions, "earlier narrative") : null)],
  ["tokens_observed", "stands for", (row) => plural(row.tokens_observed, "token") + ` in ${count(row.tokens)}`], ["tokens_before", "condensed", (row) => `${count(row.tokens_before)} → ${plural(row.tokens_after, "token")}, generation ${row.generation}`],
  ["current_task", "current task", (row) => row.current_task], ["expires_at", "until", (row) => time(row.expires_at)], ["ended_at", "ended", (row) => time(row.ended_at)],
];

const fate = (row) => {
  if (expired(row)) return "past its time to live";
  if (row.stale) return "rests on something that was changed or forgotten; not handed out until it is redone";
  return { superseded: "replaced", merged: "merged into another", evicted: "evicted from the working set" }[row.status] || null;
};

const body = (row, reference) => {
  return h("span", { class: "said", dir: "auto" }, reference ? marked(row.text, nearest(row.text, reference)) : row.text, row.characters ? h("em", { class: "soft" }, whole(row)) : null);
};

// A step down: a source, with its own sources inside.
const step = (role, key, reference, way) => {
  const row = rows.get(key), [kind, id] = split(key);
  const item = h("li", {}, h("span", { class: "head" }, { merged_from: "merged from ", mentioned_in: "also told in " }[role], row ? h("a", { href: link(key) }, badge(kind)) : badge(kind),
    row && title(row) ? h("span", { dir: "auto" }, title(row)) : null, row?.at ? time(row.at) : null, row && fate(row) ? h("span", { class: "status" }, fate(row)) : null));
  if (row?.text) item.append(body(row, kind === "message" || kind === "file" ? reference : null));
  else if (!row) item.append(h("span", { class: "soft" }, `number ${id}; its text is in the file, not in this page`));
  if (!way.includes(key) && links[key]) item.append(chain(key, reference, [...way, key]));
  return item;
};

const chain = (key, reference, way) => {
  const found = sourceKeys(key), groups = new Map();
  for (const [, source] of found) { const kind = split(source)[0]; groups.set(kind, (groups.get(kind) || 0) + 1); }
  // What a row was summed up from first, then what was done: an episode's atoms before its turns.
  const rank = (source) => ["profile", "episode", "reflection", "observation", "memory", "exchange", "atom", "message", "turn"].indexOf(split(source)[0]);
  const ordered = [...found].sort((a, b) => rank(a[1]) - rank(b[1]));
  const list = h("ul", { class: "steps" }), named = [...groups].map(([kind, number]) => plural(number, kindName(kind), kind === "memory" ? "memories" : undefined)).join(", ");
  const fold = h("details", {}, h("summary", { class: "soft" }, `made from ${named}`), list);
  let full = false;
  const open = () => { if (full) return; full = true; const more = growing(list, ordered, ([role, source]) => step(role, source, reference, way), 12, 50); if (!more.hidden) fold.append(more); };
  fold.addEventListener("toggle", open);
  if (found.length <= 3 || way.length === 1) { fold.open = true; open(); }
  return fold;
};

const detail = (key) => {
  const row = rows.get(key), [kind, id] = split(key);
  const inside = h("div", { class: "inside" });
  const heading = h("h2", { id: "detail-title", tabindex: "-1", dir: "auto" }, badge(kind), " ", row ? short(title(row), 80) || `number ${id}` : `number ${id}`);
  dialog.replaceChildren(h("div", { class: "bartop" }, heading, h("button", { type: "button", onclick: () => dialog.close() }, "Close")), inside);
  if (!row) { inside.append(h("p", {}, "This row is in the file, but this page had no room for its text.")); return; }
  if (row.text) inside.append(h("blockquote", { class: `k-${known(kind)}` }, body(row)));
  if (fate(row)) inside.append(h("p", { class: "status" }, `No longer held: ${fate(row)}${row.ended_at ? `, ${told(row.ended_at)}` : ""}.`));
  const by = endedBy(row);
  if (by && by !== key && rows.has(by)) inside.append(h("p", {}, "In its place: ", h("a", { href: link(by), dir: "auto" }, short(rows.get(by).text, 120))));
  inside.append(h("dl", { class: "facts" }, FACTS.filter(([name]) => row[name] != null).map(([, name, tell]) => { const value = tell(row); return value ? [h("dt", {}, name), h("dd", {}, value)] : null; })));
  if (row.rules?.length) inside.append(h("h3", {}, "Rules"), h("ul", {}, row.rules.map((rule) => h("li", { dir: "auto" }, `if ${rule.if} then ${rule.then}${rule.turns?.length ? ` (${rule.turns.map((turn) => "T" + turn).join(", ")})` : ""}`))));
  inside.append(h("h3", {}, "Where it comes from"));
  const raw = kind === "turn" || kind === "message";
  if (links[key]) inside.append(chain(key, row.text, [key]), h("p", { class: "soft" }, "Marked in what was said: what shares most words with it."));
  else inside.append(h("p", { class: "soft" }, raw ? `It is the source itself: what was ${kind === "turn" ? "done" : "said"}.` : kind === "memory" ? "It was told directly, or its sources are not in this page." : "Nothing is kept below it."));
  const above = resting.get(key);
  if (above) { const list = h("ul", { class: "steps" }); inside.append(h("h3", {}, "What rests on it"), list, growing(list, above, ([, each]) => h("li", {}, h("a", { href: link(each) }, badge(split(each)[0])), " ", h("span", { dir: "auto" }, short(rows.get(each)?.text, 160))), 8)); }
  inside.append(h("p", { class: "soft" }, "In the file: ", h("code", {}, `select * from provenance where kind = '${kind}' and id = ${id}`)));
};

const open = (key) => {
  if (!dialog.open) { opener = document.activeElement; dialog.showModal(); }
  detail(key);
  dialog.scrollTop = 0;
  byId("detail-title").focus();
};
dialog.addEventListener("close", () => {
  if (keyOf(location.hash)) history.replaceState(null, "", before || location.pathname + location.search);
  if (opener?.isConnected) opener.focus();
});
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
const follow = () => {
  hideTip();
  const key = keyOf(location.hash);
  if (key) open(key);
  else { before = location.hash; if (dialog.open) dialog.close(); }
};
addEventListener("hashchange", follow);
