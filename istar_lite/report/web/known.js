// What is known now, ranked, with the search box over it.
const RAW = ["message", "turn"];
const MEASURES = only({
  memory: ["strength = what is left × importance × emotion", (row) => [row.decay, `${percent(row.decay)} left`]],
  atom: ["by priority; the lowest goes first", (row) => [row.priority / 100, `priority ${Math.round(row.priority)}`]],
  episode: ["the latest first", (row) => [null, `T${row.turn_start}–T${row.turn_end}`]],
  profile: ["the latest first", (row) => [null, row.rules?.length ? plural(row.rules.length, "rule") : "lesson"]],
  observation: ["the latest first", (row) => [null, row.stage === "buffered" ? "waiting" : "in the context"]],
  reflection: ["the latest first", (row) => [null, `generation ${row.generation}`]],
  message: ["the latest first, as far as in this page", (row) => [null, row.speaker || ""]],
  turn: ["the latest first, as far as in this page", (row) => [null, row.title || ""]],
});
const PART = { memory: 12 };

const lists = new Map(Object.entries(data.known).map(([kind, ids]) => [kind, ids.map((id) => `${kind}-${id}`)]));
for (const kind of RAW) lists.set(kind, [...rows.keys()].filter((key) => rows.get(key).kind === kind).sort((a, b) => (rows.get(b).at || "").localeCompare(rows.get(a).at || "") || split(b)[1] - split(a)[1]));
const index = new Map();
const indexed = (key) => {
  if (!index.has(key)) { const row = rows.get(key); index.set(key, plain([row.text, title(row), row.session, row.emotion === "neutral" ? "" : row.emotion, ...(row.tags || [])].join(" "))); }
  return index.get(key);
};
const hits = (kind, terms) => lists.get(kind).filter((key) => terms.every((term) => indexed(key).includes(term)));

// Where the words of the query stand in the text: compared letter by letter, so that accents do not shift the places.
const places = (text, terms) => {
  if (!terms.length) return [];
  const letters = Array.from(text), folded = letters.map(plain), spans = [];
  const joined = folded.join(""), starts = [];
  let at = 0, real = 0;
  folded.forEach((letter, number) => { for (let each = 0; each < letter.length; each += 1) starts[at + each] = [real, real + letters[number].length]; at += letter.length; real += letters[number].length; });
  for (const term of terms) for (let found = joined.indexOf(term); found >= 0 && spans.length < 40; found = joined.indexOf(term, found + term.length)) spans.push({ start: starts[found][0], end: starts[found + term.length - 1][1] });
  return spans.sort((a, b) => a.start - b.start);
};

const entry = (terms) => (key) => {
  const row = rows.get(key), measure = MEASURES[row.kind]?.[1](row) || [null, ""];
  const about = [row.kind === "atom" || row.kind === "episode" || row.kind === "profile" || row.kind === "file" || row.kind === "item" ? title(row) : null, row.session, told(row.at, "day"),
    row.emotion && row.emotion !== "neutral" ? row.emotion : null, row.access_count ? `handed out ${plural(row.access_count, "time")}` : null, row.heat ? `handed out ${plural(row.heat, "time")}` : null,
    row.place === 1 && row.room <= 0 ? "the next to be evicted" : null, row.expires_at ? `until ${told(row.expires_at)}` : null, ...(row.tags || []).map((tag) => `#${tag}`)];
  const text = row.text || "";
  return h("li", {}, h("a", { class: "entry", href: link(key) },
    h("div", { class: `measure k-${known(row.kind)}` }, measure[0] == null ? null : h("div", { class: "bar", "aria-hidden": "true" }, h("i", { width: `${Math.max(2, measure[0] * 100)}%` })), h("span", { class: "soft" }, measure[1])),
    h("div", { class: "text", dir: "auto" }, marked(text, places(text, terms))), h("div", { class: "meta" }, about.filter(Boolean).join(" · "))));
};

const group = (kind, keys, terms) => {
  const list = h("ol", { class: "ranked" });
  const all = data.totals[kind] ?? keys.length;
  const size = terms.length ? plural(keys.length, "hit") : keys.length < all && !RAW.includes(kind) ? `${count(keys.length)} of ${count(all)}` : count(keys.length);
  return h("section", { class: "card", "aria-label": kindsName(kind) },
    h("header", {}, symbol(kind), h("h3", {}, kindsName(kind)), h("span", { class: "soft" }, size), h("span", { class: "soft" }, MEASURES[kind]?.[0] || "the latest first")),
    list, growing(list, keys, entry(terms), terms.length ? 20 : PART[kind] || 6));
};

const shownKinds = new Set([...lists.keys()].filter((kind) => !RAW.includes(kind)));
const showKnown = () => {
  const terms = words(byId("search").value), present = [...lists.keys()].filter((kind) => lists.get(kind).length && shownKinds.has(kind));
  const found = present.map((kind) => [kind, terms.length ? hits(kind, terms) : lists.get(kind)]).filter(([, keys]) => keys.length);
  const total = found.reduce((sum, [, keys]) => sum + keys.length, 0);
  // Memories over the whole width; the rest in columns, where short lists leave no holes beside long ones.
  const groups = found.map(([kind, keys]) => [kind, group(kind, keys, terms)]), first = groups.filter(([kind]) => kind === "memory"), others = groups.filter(([kind]) => kind !== "memory");
  byId("groups").replaceChildren(...first.map(([, made]) => made), h("div", { class: "beside" }, others.map(([, made]) => made)));
  byId("found").textContent = terms.length ? (total ? `${plural(total, "row")} with these words` : "Nothing in this page has these words") + (shownKinds.has("message") || shownKinds.has("turn") ? "." : ". What was said and done is not searched: choose it above to search it too.") : "";
  if (!found.length && !terms.length) byId("groups").append(h("p", { class: "empty" }, lists.size && [...lists.values()].some((keys) => keys.length) ? "No kind is chosen." : "Nothing yet."));
};

const startKnown = () => {
  for (const [kind, keys] of lists) {
    if (!keys.length) continue;
    const box = h("input", { type: "checkbox", value: kind, checked: shownKinds.has(kind), onchange: () => { if (box.checked) shownKinds.add(kind); else shownKinds.delete(kind); showKnown(); } });
    byId("kinds").append(h("label", {}, box, symbol(kind), kindsName(kind)));
  }
  let waiting = 0;
  byId("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(showKnown, 80); });
  showKnown();
};
