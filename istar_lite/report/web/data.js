// The rows of the page by key ("memory-12"), and where each leads.
const data = JSON.parse(byId("data").textContent);
// Tables that are asked with words from the file or the address hold nothing but their own entries.
const only = (entries) => Object.assign(Object.create(null), entries);
const rows = new Map(Object.entries(data.rows));
const KINDS = only({
  memory: ["memory", "memories"], profile: ["lesson", "lessons of earlier runs"], episode: ["episode", "episodes"], atom: ["atom", "atoms in the working set"],
  reflection: ["reflection", "logs, condensed"], observation: ["observation", "log of the conversation"], file: ["file", "files"], item: ["item", "kept values"],
  exchange: ["exchange", "exchanges"], message: ["message", "what was said"], turn: ["turn", "what was done"],
});
const links = only(data.links);
const kindName = (kind) => (KINDS[kind] || [kind])[0];
const kindsName = (kind) => (KINDS[kind] || [kind, kind + "s"])[1];
const split = (key) => { const at = key.lastIndexOf("-"); return [key.slice(0, at), Number(key.slice(at + 1))]; };
const link = (key) => "#" + encodeURIComponent(key);
const keyOf = (hash) => { try { const key = decodeURIComponent(hash.slice(1)); return /-\d+$/.test(key) ? key : null; } catch { return null; } };
const known = (kind) => new RegExp("^[a-z]+$").test(kind) ? kind : "item";  // a class name, whatever a host calls its documents

// A shape beside each colour: colours alone would tell some readers nothing.
const SHAPES = only({
  memory: "M5 0A5 5 0 1 1 5 10A5 5 0 1 1 5 0Z", profile: "M5 0L6.5 3.4L10 3.8L7.4 6.2L8.1 9.8L5 8L1.9 9.8L2.6 6.2L0 3.8L3.5 3.4Z", episode: "M0 1.5H10V8.5H0Z",
  atom: "M5 0L10 5L5 10L0 5Z", turn: "M3.4 0H6.6V10H3.4Z", message: "M0 1H10V7H6L3 10V7H0Z", exchange: "M0 1H10V7H6L3 10V7H0Z", observation: "M5 .5L10 9.5H0Z",
  reflection: "M5 9.5L10 .5H0Z", file: "M1 0H7L9 2V10H1Z", item: "M1 1H9V9H1Z",
});
const shape = (kind, props) => s("path", { d: SHAPES[kind] || SHAPES.item, ...props });
const symbol = (kind) => s("svg", { class: `dot k-${known(kind)}`, viewBox: "0 0 10 10", "aria-hidden": "true" }, shape(kind));
const badge = (kind) => h("span", { class: `kind k-${known(kind)}` }, symbol(kind), kindName(kind));

// Sources of a row: [role, kind, ids]; and the other way round, for "what rests on it".
const sources = (key) => (links[key] || []).map(([role, kind, first, last]) => [role, kind, Array.from({ length: last - first + 1 }, (_, at) => first + at)]);
const sourceKeys = (key) => sources(key).flatMap(([role, kind, ids]) => ids.map((id) => [role, `${kind}-${id}`]));
const resting = new Map();
for (const key of Object.keys(data.links)) for (const [role, source] of sourceKeys(key)) {
  if (!resting.has(source)) resting.set(source, []);
  resting.get(source).push([role, key]);
}
const endedBy = (row) => (row.ended_by ? row.ended_by.replace(/ (\d+)$/, "-$1") : null);
const expired = (row) => row.expires_at && row.expires_at <= data.now;
const title = (row) => (row.kind === "message" ? row.speaker : row.kind === "memory" ? "" : row.title) || "";
const whole = (row) => (row.characters ? `… ${plural(row.characters - row.text.length, "more character")} in the file` : "");

// Words without accents and case, as the search of the file sees them.
const plain = (text) => (text || "").normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
const words = (text) => plain(text).match(/[\p{L}\p{N}]+/gu) || [];

// The sentences of `text` that share most words with `reference`; none where hardly a word is shared. Words count by
// their beginnings: "trust" and "trusted" are the same here.
const stems = (text) => new Set(words(text).filter((word) => word.length > 3 || /\p{N}/u.test(word)).map((word) => word.slice(0, 5)));
const nearest = (text, reference) => {
  const wanted = stems(reference);
  const found = [...text.matchAll(/[^.!?。！？\n]+[.!?。！？]*/gu)].map((match) => {
    const start = match.index + match[0].search(/\S|$/), shared = [...stems(match[0])].filter((stem) => wanted.has(stem)).length;
    return { shared, start, end: match.index + match[0].trimEnd().length };
  });
  const best = Math.max(0, ...found.map((one) => one.shared));
  return best >= Math.min(2, wanted.size) && best > 0 ? found.filter((one) => one.shared === best) : [];
};
const marked = (text, spans) => {
  const parts = [];
  let at = 0;
  for (const { start, end } of spans) { if (start < at) continue; parts.push(text.slice(at, start), h("mark", {}, text.slice(start, end))); at = end; }
  parts.push(text.slice(at));
  return parts;
};
