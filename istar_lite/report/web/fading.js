// Forgetting curves. Only what the file knows is drawn: the trail keeps when a memory was handed out and what was left
// of it just before, which gives how fast it faded in between. Where the trail is cut off, nothing is drawn.
const DAY = 86400e3;
const at = (text) => new Date(text).getTime();

const segments = (row) => {
  const now = at(data.now), born = at(row.at), returns = (row.returns || []).map(([when, via, decay]) => ({ at: at(when), via, decay }));
  const last = row.last_accessed_at ? at(row.last_accessed_at) : born, whole = returns.length === (row.access_count || 0), found = [];
  // From one return to the next: whole after the first, `decay` just before the second; the stability follows.
  const between = (from, to) => {
    if (to.decay == null || to.at <= from) return;
    const stability = to.decay < 1 ? (to.at - from) / DAY / -Math.log(to.decay) : Infinity;
    found.push({ from, to: to.at, stability });
  };
  if (whole && returns.length) between(born, returns[0]);
  for (let each = 1; each < returns.length; each += 1) between(returns[each - 1].at, returns[each]);
  if (last < now) found.push({ from: last, to: now, stability: Math.max(row.stability, 0.1) });
  return { found, returns, unknown: (row.access_count || 0) - returns.length, last: Math.min(last, now) };
};

const drawCurves = (keys) => (width) => {
  const now = at(data.now), height = width < 560 ? 220 : 300, left = 44, right = 14, top = 12, bottom = 26;
  const all = keys.map((key) => ({ key, row: rows.get(key), ...segments(rows.get(key)) }));
  const start = Math.min(now - DAY, ...all.flatMap((each) => each.found.map((one) => one.from))), end = now + Math.max(DAY, (now - start) * 0.3);
  const x = (when) => left + ((when - start) / (end - start)) * (width - left - right), y = (share) => top + (1 - share) * (height - top - bottom);
  const path = (from, to, stability) => {
    const parts = Math.max(2, Math.min(80, Math.round((x(to) - x(from)) / 3)));
    return Array.from({ length: parts + 1 }, (_, part) => { const when = from + ((to - from) * part) / parts; return `${part ? "L" : "M"}${x(when).toFixed(1)} ${y(Math.exp(-Math.min((when - from) / DAY / stability, 700))).toFixed(1)}`; }).join("");
  };
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) svg.append(s("path", { class: "grid", d: `M${left} ${y(share)}H${width - right}` }), s("text", { x: left - 8, y: y(share) + 4, "text-anchor": "end" }, `${share * 100}%`));
  const step = (end - start) / DAY > 3 ? "day" : "minute", ticks = Math.max(2, Math.floor(width / 200));
  for (let tick = 0; tick < ticks; tick += 1) { const when = start + ((now - start) * tick) / ticks; svg.append(s("text", { x: Math.max(left, x(when)), y: height - 6 }, told(when, step))); }
  svg.append(s("path", { class: "grid strong", d: `M${x(now)} ${top - 6}V${height - bottom}` }), s("text", { x: x(now), y: height - 6, "text-anchor": "middle" }, "now"));
  all.forEach((each, number) => {
    const tint = s("g", { class: `c${number % 6}` });
    for (const one of each.found) tint.append(s("path", { class: "curve", d: path(one.from, one.to, one.stability) }));
    const ahead = Math.max(each.row.stability, 0.1), left_now = Math.exp(-Math.min((now - each.last) / DAY / ahead, 700));
    const beyond = Array.from({ length: 41 }, (_, part) => { const when = now + ((end - now) * part) / 40; return `${part ? "L" : "M"}${x(when).toFixed(1)} ${y(left_now * Math.exp(-(when - now) / DAY / ahead)).toFixed(1)}`; }).join("");
    tint.append(s("path", { class: "curve ahead", d: beyond }));
    svg.append(tint);
    // What a return did: from what was left, back to the whole.
    for (const one of each.returns) if (one.decay != null) tint.append(s("path", { class: "rise", d: `M${x(one.at)} ${y(one.decay)}V${y(1)}` }));
    for (const one of each.returns) svg.append(s("g", { class: `c${number % 6}` }, fill(mark(each.key, spoken([short(each.row.text, 100), `handed out ${told(one.at)} (${one.via})`, one.decay == null ? null : `${percent(one.decay)} was left of it`]), number, x(one.at), s("circle", { cx: x(one.at), cy: y(1), r: 4.5 })), { class: "mark" }, [])));
    svg.append(s("g", { class: `c${number % 6}` }, fill(mark(each.key, spoken([short(each.row.text, 100), `${percent(each.row.decay)} left now`]), number, x(now), s("circle", { class: "hollow", cx: x(now), cy: y(left_now), r: 4.5 })), { class: "mark" }, [])));
  });
  return chart(svg, "Forgetting curves");
};

const startFading = () => {
  const keys = lists.get("memory"), place = byId("curves");
  if (!keys.length) { place.append(h("p", { class: "empty" }, "There are no memories that fade.")); return; }
  const offered = [...keys].sort((a, b) => (rows.get(b).returns?.length || 0) - (rows.get(a).returns?.length || 0) || rows.get(b).strength - rows.get(a).strength).slice(0, 18);
  let chosen = offered.slice(0, Math.min(4, offered.length));
  const room = h("div", {}), picks = h("ul", { class: "picks" }), gaps = h("p", { class: "soft" });
  const redraw = drawn(room, (width) => drawCurves(chosen)(width));
  const list = () => {
    picks.replaceChildren(...offered.map((key) => {
      const box = h("input", { type: "checkbox", checked: chosen.includes(key), onchange: () => { chosen = box.checked ? [...chosen, key].slice(-6) : chosen.filter((each) => each !== key); list(); picks.querySelectorAll("input")[offered.indexOf(key)].focus(); redraw(); } });
      const number = chosen.indexOf(key);
      return h("li", {}, h("label", {}, box, number < 0 ? null : s("svg", { class: `dot c${number % 6}`, viewBox: "0 0 10 10", "aria-hidden": "true" }, shape("memory")), h("span", { dir: "auto" }, short(rows.get(key).text, 140))));
    }));
    const cut = chosen.filter((key) => segments(rows.get(key)).unknown > 0);
    gaps.textContent = cut.length ? `Of ${plural(cut.length, "memory", "memories")} shown some returns are no longer in the trail of recalls; the curve begins where the trail does.` : "";
  };
  list();
  place.append(h("div", { class: "chart" }, room, h("ul", { class: "legend" }, h("li", {}, "● handed out"), h("li", {}, "○ now"), h("li", {}, "⋯ if nobody asks"))), gaps, h("fieldset", { class: "chosen" }, h("legend", { class: "soft" }, `Choose up to six${keys.length > offered.length ? `; offered are the ${count(offered.length)} of ${count(keys.length)} that were handed out most` : ""}`), picks));
};
