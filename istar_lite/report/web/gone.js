// What no longer holds, with what took its place; of the forgotten only how much and when.
const why = (row) => {
  const by = endedBy(row), other = by && rows.get(by);
  const named = (text) => (other ? h("a", { href: link(by), dir: "auto" }, short(other.text, 140)) : by ? `${text} ${by}` : null);
  if (row.status === "evicted" && row.kind === "atom") return [other ? (row.priority === other.priority ? `the older one of priority ${Math.round(row.priority)} made room for: ` : `priority ${Math.round(row.priority)} made room for priority ${Math.round(other.priority)}: `) : "the lowest priority when another came", other ? named("") : ""];
  if (row.status === "superseded") return ["replaced", by ? " by: " : "", named("")];
  if (row.status === "merged") return ["says the same as others, now one: ", named("")];
  return [fate(row) || row.status, by ? ": " : "", named("")];
};

const startGone = () => {
  const place = byId("ended"), keys = data.ended.filter((key) => rows.has(key)), of = (status) => data.counts.filter((row) => row.status === status).reduce((sum, row) => sum + row.rows, 0);
  const states = [["superseded", "replaced"], ["merged", "merged"], ["evicted", "evicted"]].filter(([state]) => keys.some((key) => rows.get(key).status === state));
  const lost = data.forgotten.reduce((sum, row) => sum + row.rows, 0), waiting = of("stale"), past = of("expired");
  const figures = [...states.map(([state, name]) => [of(state), name]), [past, "past their time to live"], [waiting, "to be redone: they rest on what changed"], [lost, "forgotten for good"]].filter(([number]) => number);
  if (!figures.length) { place.append(h("p", { class: "empty" }, "Everything that was learnt still holds.")); return; }
  place.append(h("ul", { class: "figures" }, figures.map(([number, name]) => h("li", {}, h("b", {}, count(number)), h("span", {}, name)))));
  if (keys.length) {
    const made = table(null, [{ name: "when" }, { name: "what" }, { name: "text" }, { name: "why" }], []), list = made.querySelector("tbody");
    const row = (key) => { const one = rows.get(key); return h("tr", {}, h("td", {}, one.ended_at ? time(one.ended_at, "day") : ""), h("td", {}, badge(one.kind)), h("td", { dir: "auto" }, h("a", { href: link(key) }, short(one.text, 160) || `number ${one.id}`)), h("td", {}, why(one))); };
    const total = ["superseded", "merged", "evicted"].reduce((sum, state) => sum + of(state), 0);
    place.append(h("div", { class: "card" }, made, growing(list, keys, row, 10), keys.length < total ? h("p", { class: "soft" }, `The latest ${count(keys.length)} of ${count(total)}.`) : null));
  }
  if (data.forgotten.length) place.append(h("div", { class: "card" }, table("Forgotten for good: no text is kept, only digests by which it is known when it comes back", [{ name: "day" }, { name: "what" }, { name: "digests", num: true }], data.forgotten.map((row) => [time(row.first_at, "day"), kindsNameShort(row.kind, row.rows), count(row.rows)]))));
};
const kindsNameShort = (kind, number) => (number === 1 ? kindName(kind) : kind === "memory" ? "memories" : kindName(kind) + "s");
