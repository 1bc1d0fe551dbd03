// What waits, what it cost, what was handed out.
const costChart = (calls) => (width) => {
  const byDay = new Map();
  for (const call of calls) { const sum = byDay.get(call.day) || { in: 0, out: 0, calls: 0 }; byDay.set(call.day, { in: sum.in + call.tokens_in, out: sum.out + call.tokens_out, calls: sum.calls + call.calls }); }
  const all = [...byDay].sort(([a], [b]) => a.localeCompare(b)).slice(-60), most = Math.max(1, ...all.map(([, sum]) => sum.in + sum.out)), height = 150, wide = Math.min(40, (width - 16) / all.length - 2);
  const svg = s("svg", { width, height: height + 22, viewBox: `0 0 ${width} ${height + 22}` }, s("path", { class: "grid strong", d: `M0 ${height}H${width}` }));
  all.forEach(([day, sum], number) => {
    const left = 8 + number * (wide + 2), into = (sum.in / most) * (height - 10), out = (sum.out / most) * (height - 10);
    svg.append(fill(mark("call-0", spoken([told(day, "day"), `${plural(sum.calls, "call")}, ${plural(sum.in, "token")} in, ${count(sum.out)} out`]), 0, left, s("rect", { x: left, y: height - into, width: wide, height: into, opacity: 0.5 }), s("rect", { x: left, y: height - into - out, width: wide, height: out })), { class: "mark k-episode", href: "#work" }, []));
  });
  svg.append(s("text", { x: 8, y: height + 16 }, told(all[0][0], "day")), all.length > 3 ? s("text", { x: 8 + all.length * (wide + 2), y: height + 16, "text-anchor": "end" }, told(all.at(-1)[0], "day")) : "");
  return chart(svg, "Tokens by day");
};

const startWork = () => {
  const place = byId("desk"), sums = new Map();
  for (const call of data.calls) { const sum = sums.get(call.purpose) || { calls: 0, failed: 0, tokens_in: 0, tokens_out: 0, seconds: 0 }; for (const name of Object.keys(sum)) sum[name] += call[name]; sums.set(call.purpose, sum); }
  place.append(h("div", { class: "card" }, data.due.length
    ? table(data.due.length >= 200 ? "Due (the first 200)" : "Due", [{ name: "work" }, { name: "where" }, { name: "tries", num: true }, { name: "why it waits" }], data.due.map((row) => [row.purpose, row.session || "", count(row.attempts), row.why]))
    : [h("h3", {}, "Due"), h("p", { class: "empty" }, "Nothing waits.")]));
  if (sums.size) {
    const room = h("div", {});
    place.append(h("div", { class: "card" }, h("h3", {}, "Tokens by day"), room, h("ul", { class: "legend" }, h("li", {}, "pale: into the model"), h("li", {}, "full: out of it")),
      table("What the model cost", [{ name: "for" }, { name: "calls", num: true }, { name: "failed", num: true }, { name: "tokens in", num: true }, { name: "tokens out", num: true }, { name: "seconds", num: true }], [...sums].map(([purpose, sum]) => [purpose, count(sum.calls), count(sum.failed), count(sum.tokens_in), count(sum.tokens_out), sum.seconds.toFixed(1)]))));
    drawn(room, costChart(data.calls));
  } else place.append(h("div", { class: "card" }, h("h3", {}, "What the model cost"), h("p", { class: "empty" }, "No model has been asked.")));
  if (data.recalls.length) {
    const made = table(`What went into prompts${data.recalls.length >= 40 ? " (the last 40)" : ""}`, [{ name: "when" }, { name: "by" }, { name: "asked" }, { name: "what" }], []), list = made.querySelector("tbody");
    const row = (recall) => h("tr", {}, h("td", {}, time(recall.at)), h("td", {}, recall.via.replace("_", " ")), h("td", { dir: "auto" }, recall.query || ""), h("td", {}, recall.hits.length ? recall.hits.map((key) => [h("a", { href: link(key), dir: "auto", title: short(rows.get(key)?.text, 140) }, `${kindName(split(key)[0])} ${split(key)[1]}`), " "]) : "nothing"));
    place.append(h("div", { class: "card" }, made, growing(list, data.recalls, row, 8)));
  }
};
