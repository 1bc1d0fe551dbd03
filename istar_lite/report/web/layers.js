// How text shrank, and the map.
const funnel = (name, about, steps) => {
  const shown = steps.filter((step) => step.characters > 0 && step.rows !== 0), most = Math.max(...shown.map((step) => step.characters));
  if (shown.length < 1) return null;
  return h("section", { class: "card", "aria-label": name }, h("header", {}, h("h3", {}, name), h("span", { class: "soft" }, about)), h("dl", { class: "funnel" }, shown.map((step, number) => {
    const shrunk = number ? shown[0].characters / step.characters : 1;
    const long = h("div", { class: `long k-${step.kind}`, "aria-hidden": "true", width: `${(step.characters / most) * 100}%` });
    return [h("dt", {}, step.name), h("dd", {}, long, h("span", { class: "said" }, [step.rows == null ? null : plural(step.rows, ...step.unit), `${count(step.characters)} ${step.measure || "characters"}`, number && shrunk >= 1.05 ? `${shrunk.toLocaleString(undefined, { maximumSignificantDigits: 2 })} times less` : null].filter(Boolean).join(" · ")))];
  })));
};

const startLayers = () => {
  const layer = (session_kind, kind) => data.layers.find((row) => row.session_kind === session_kind && row.kind === kind) || { rows: 0, characters: 0, live: 0, live_characters: 0 };
  const [turn, atom, episode, profile] = ["turn", "atom", "episode", "profile"].map((kind) => layer("run", kind));
  const said = layer("conversation", "message"), memory = layer("", "memory");
  const made = [
    turn.rows && funnel("Runs", "turns → atoms → episodes → lessons", [
      { name: "Turns", kind: "turn", rows: turn.rows, characters: turn.characters, unit: ["turn"] }, { name: "Atoms ever", kind: "atom", rows: atom.rows, characters: atom.characters, unit: ["atom"] },
      { name: "Working set", kind: "atom", rows: atom.live, characters: atom.live_characters, unit: ["atom"] }, { name: "Episodes", kind: "episode", rows: episode.live, characters: episode.live_characters, unit: ["episode"] },
      { name: "Lessons", kind: "profile", rows: profile.live, characters: profile.live_characters, unit: ["lesson"] }]),
    (said.rows || memory.rows) && funnel("Conversations", "what was said → what is kept", [
      { name: "Said", kind: "message", rows: said.rows, characters: said.characters, unit: ["message"] }, { name: "Memories ever", kind: "memory", rows: memory.rows, characters: memory.characters, unit: ["memory", "memories"] },
      { name: "Memories now", kind: "memory", rows: memory.live, characters: memory.live_characters, unit: ["memory", "memories"] }]),
    ...data.observed.map((one) => funnel(`Observed: ${one.name}`, one.generation ? `condensed ${plural(one.generation, "time")}` : "messages → log", [
      { name: "Read", kind: "message", rows: null, characters: one.tokens_observed, measure: "tokens of messages" }, { name: "The log", kind: "observation", rows: null, characters: one.tokens_log, measure: "tokens in their place" }])),
  ].filter(Boolean);
  byId("funnels").append(...(made.length ? made : [h("p", { class: "empty" }, "Nothing yet.")]));
};

const startMap = () => {
  const points = data.map.points.filter(([key]) => rows.has(key)), place = byId("plane"), kinds = [...new Set(points.map(([key]) => split(key)[0]))];
  if (points.length < 2) { byId("map-lead").textContent = "The map needs vectors of at least two rows; this file has none yet (a search makes them)."; return; }
  byId("map-lead").textContent = `Close together: much the same meaning. ${plural(points.length, "row")} by their vectors (${data.map.model}), in the two directions in which they differ most; these hold ${percent(data.map.share)} of the spread, so that neighbours here need not be neighbours in all directions.`;
  const shown = new Set(kinds), room = h("div", {});
  const redraw = drawn(room, (width) => {
    const height = Math.round(Math.min(520, Math.max(300, width * 0.6))), pad = 18, all = points.filter(([key]) => shown.has(split(key)[0]));
    const xs = all.map((point) => point[1]), ys = all.map((point) => point[2]), low = [Math.min(...xs), Math.min(...ys)], span = [Math.max(...xs) - low[0] || 1, Math.max(...ys) - low[1] || 1];
    const size = all.length > 600 ? 6 : all.length > 200 ? 8 : 11;
    const marks = all.map(([key, px, py]) => { const x = pad + ((px - low[0]) / span[0]) * (width - 2 * pad), y = pad + (1 - (py - low[1]) / span[1]) * (height - 2 * pad), row = rows.get(key);
      return { x, made: mark(key, spoken([kindName(row.kind) + (fate(row) ? `, ${fate(row)}` : ""), short(row.text, 140)]), 0, x, s("g", { transform: `translate(${x - size / 2} ${y - size / 2}) scale(${size / 10})` }, shape(row.kind, { class: fate(row) ? "hollow" : null, opacity: RAW.includes(row.kind) ? 0.45 : 0.85 })) ) }; });
    return chart(s("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, marks.sort((a, b) => a.x - b.x).map((each) => each.made)), "Map of memories");
  });
  const chips = h("fieldset", { class: "chips" }, h("legend", { class: "quiet" }, "Kinds on the map"), kinds.map((kind) => { const box = h("input", { type: "checkbox", checked: true, onchange: () => { if (box.checked) shown.add(kind); else shown.delete(kind); redraw(); } }); return h("label", {}, box, symbol(kind), kindsName(kind)); }));
  place.append(h("div", { class: "tools" }, chips), h("div", { class: "chart" }, room));
};
