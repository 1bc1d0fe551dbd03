// A session in lanes. Marks link to their rows; one without a text in this page still says what the file knows of it.
const LANE_GAP = 14;
const textOf = (key, most = 160) => short(rows.get(key)?.text, most);
const spoken = (parts) => parts.filter(Boolean).join("\n");

const rewardLane = (turns, x, wide) => {
  const rewards = turns.map((turn) => turn.reward).filter((reward) => reward != null);
  const high = Math.max(0, ...rewards), low = Math.min(0, ...rewards), span = high - low || 1, height = rewards.length ? 90 : 24;
  const y = (reward) => ((high - reward) / span) * height;
  const bars = (top, lane) => turns.map((turn) => {
    const key = `turn-${turn.id}`, left = x(turn.turn) - wide / 2;
    const drawnTo = turn.reward == null ? [height / 2 - 6, 12] : [Math.min(y(0), y(turn.reward)), Math.max(1.5, Math.abs(y(turn.reward) - y(0)))];
    return mark(key, spoken([textOf(key) || `T${turn.turn}`]), lane, x(turn.turn), s("rect", { class: turn.reward < 0 ? "bad" : null, x: left, y: top + drawnTo[0], width: Math.max(1, wide), height: drawnTo[1], rx: Math.min(2, wide / 3) }));
  });
  const unit = turns.find((turn) => turn.reward_unit)?.reward_unit || "";
  return { name: "Turns", about: rewards.length ? `reward${unit ? ` in ${unit}` : ""}, ${count(Math.round(low))} to ${count(Math.round(high))}` : "", height, draw: (top, lane, width) => [s("path", { class: "grid strong", d: `M0 ${top + y(0)}H${width}` }), bars(top, lane)] };
};

const messageLane = (messages, x, wide) => {
  const most = Math.max(1, ...messages.map((message) => message.tokens || 0)), half = 40;
  const draw = (top, lane, width) => [s("path", { class: "grid strong", d: `M0 ${top + half}H${width}` }), messages.map((message) => {
    const key = `message-${message.id}`, tall = Math.max(3, Math.sqrt((message.tokens || 1) / most) * half), user = message.role === "user", row = rows.get(key);
    return mark(key, spoken([`${row?.speaker || message.role}: ${textOf(key) || plural(message.tokens, "token")}`, row && told(row.at)]), lane, x(message.position), s("rect", { x: x(message.position) - wide / 2, y: top + (user ? half - tall : half), width: Math.max(1, wide), height: tall, rx: Math.min(2, wide / 3), opacity: user ? 1 : 0.55 }));
  })];
  return { name: "Messages", about: "user above, others below", height: half * 2, draw };
};

// Each atom lives on a line from its turn to the one whose atom took its place: as many lines as the cap allows.
const atomLane = (atoms, x, last) => {
  const free = [], placed = [];
  for (const atom of [...atoms].sort((a, b) => a.turn - b.turn || a.id - b.id)) {
    const gone = atom.status !== "active", end = gone ? atom.ended_turn ?? atom.turn : last;
    let line = free.findIndex((until) => until < atom.turn || (until === atom.turn && gone));
    if (line < 0) line = free.length;
    free[line] = gone ? end : Infinity;
    placed.push({ ...atom, gone, end, line });
  }
  const lines = Math.max(1, free.length), step = Math.max(2.5, Math.min(11, 260 / lines)), size = Math.min(9, step);
  const draw = (top, lane) => placed.map((atom) => {
    const key = `atom-${atom.id}`, y = top + step * (atom.line + 0.5), from = x(atom.turn), kept = `priority ${Math.round(atom.priority)}`;
    const ending = !atom.gone ? "in the working set" : atom.ended_turn != null ? `${atom.status} by an atom of T${atom.ended_turn}` : atom.status;
    return mark(key, spoken([textOf(key) || `atom of T${atom.turn}`, `${kept}, ${ending}`]), lane, from,
      s("path", { class: "life", d: `M${from} ${y}H${Math.max(from, x(atom.end))}` }), atom.gone && atom.ended_turn != null ? s("path", { class: "grid strong", d: `M${x(atom.end)} ${y - size / 2}V${y + size / 2}` }) : null,
      s("g", { transform: `translate(${from - size / 2} ${y - size / 2}) scale(${size / 10})` }, shape("atom", { class: atom.gone ? "hollow" : null })));
  });
  const gone = placed.filter((atom) => atom.gone).length;
  return { name: "Atoms", about: `${count(placed.length - gone)} kept, ${count(gone)} evicted (hollow)`, height: step * lines, draw };
};

const spanLane = (name, kind, spans, about) => ({ name, about, height: 30, draw: (top, lane) => spans.map((span) => {
  const wide = Math.max(4, span.to - span.from), room = Math.floor(wide / 7.2);
  return mark(`${kind}-${span.id}`, spoken([span.said, textOf(`${kind}-${span.id}`)]), lane, span.from, s("rect", { class: "block", x: span.from, y: top, width: wide, height: 30, rx: 6, "stroke-dasharray": span.weak ? "4 3" : null }), room > 2 ? s("text", { x: span.from + 7, y: top + 19 }, short(span.label, room)) : null);
}) });

const pointLane = (name, kind, points, about) => ({ name, about, height: 22, draw: (top, lane) => points.map((point) => mark(point.key || `${kind}-${point.id}`, spoken([point.said, textOf(point.key || `${kind}-${point.id}`)]), lane, point.x,
  s("g", { transform: `translate(${point.x - 7} ${top + 4}) scale(1.4)` }, shape(kind, { class: point.gone ? "hollow" : null })))) });

const rootsIn = (key, base, places, way = []) => sourceKeys(key).flatMap(([, source]) => (split(source)[0] === base && places.has(split(source)[1]) ? [split(source)[1]] : way.includes(source) ? [] : rootsIn(source, base, places, [...way, key])));

const runLanes = (lanes, width) => {
  const turns = unpack(lanes.turns), first = turns[0].turn, last = turns.at(-1).turn, pad = 16;
  const x = (turn) => pad + ((Math.max(first, Math.min(last, turn)) - first) / Math.max(1, last - first)) * (width - 2 * pad), wide = Math.max(1, Math.min(14, ((width - 2 * pad) / turns.length) * 0.72));
  const seen = (from, to) => to >= first && from <= last, current = (row) => row.status === "active" && !row.stale;
  const found = [rewardLane(turns, x, wide)];
  const atoms = unpack(lanes.atoms).filter((atom) => seen(atom.turn, atom.turn)), episodes = unpack(lanes.episodes).filter((episode) => seen(episode.turn_start, episode.turn_end)), profiles = unpack(lanes.profiles);
  if (atoms.length) found.push(atomLane(atoms, x, last));
  if (episodes.length) found.push(spanLane("Episodes", "episode", episodes.map((each) => ({ id: each.id, from: x(each.turn_start) - wide / 2, to: x(each.turn_end) + wide / 2 - 1, label: each.name, weak: !current(each), said: `${each.name}, T${each.turn_start} to T${each.turn_end}` })), plural(episodes.length, "episode")));
  if (profiles.length) found.push(pointLane("Lessons", "profile", profiles.map((each) => ({ id: each.id, x: x(each.turn_end ?? last), gone: each.status !== "active", said: each.profile_id })), ""));
  return { found, x, first, last, unit: "T", number: turns.length };
};

const talkLanes = (lanes, width) => {
  const messages = unpack(lanes.messages), first = messages[0].position, last = messages.at(-1).position, pad = 16;
  const x = (position) => pad + ((position - first) / Math.max(1, last - first)) * (width - 2 * pad), wide = Math.max(1, Math.min(16, ((width - 2 * pad) / messages.length) * 0.72));
  const places = new Map(messages.map((message) => [message.id, message.position])), ids = [...places.keys()], low = Math.min(...ids), high = Math.max(...ids);
  const near = (id) => places.get(id) ?? places.get(ids.find((each) => each >= id)) ?? last;
  const spans = (name, told) => unpack(lanes[name]).filter((each) => each.last_message >= low && each.first_message <= high).map((each) => ({ id: each.id, from: x(near(each.first_message)) - wide / 2, to: x(near(Math.min(each.last_message, high))) + wide / 2 - 1, weak: each.status !== "active" || each.stale || each.stage === "buffered", ...told(each) }));
  const found = [messageLane(messages, x, wide)];
  const memories = [...rows.keys()].filter((key) => rows.get(key).kind === "memory").flatMap((key) => [...new Set(rootsIn(key, "message", places))].slice(0, 1).map((id) => ({ key, x: x(places.get(id)), gone: Boolean(fate(rows.get(key))), said: fate(rows.get(key)) || "memory" }))).sort((a, b) => a.x - b.x);
  if (memories.length) found.push(pointLane("Memories", "memory", memories, "taken out; hollow: no longer held"));
  const seen = spans("observations", (each) => ({ label: `${count(each.tokens_observed)} → ${count(each.tokens)}`, said: `${each.stage} observation, ${plural(each.tokens_observed, "token")} in ${count(each.tokens)}` }));
  if (seen.length) found.push(spanLane("Observations", "observation", seen, "tokens read → kept"));
  const condensed = spans("reflections", (each) => ({ label: `generation ${each.generation}`, said: `reflection, generation ${each.generation}` }));
  if (condensed.length) found.push(spanLane("Reflections", "reflection", condensed, "the log, condensed"));
  return { found, x, first, last, unit: "", number: messages.length };
};

const drawLanes = (session) => (room) => {
  const run = session.kind === "run", marks = session.lanes[run ? "turns" : "messages"];
  const names = room < 560 ? 79 : 145, inner = Math.max(room - names - 2, marks.marks.length * 4, 220);
  const { found, x, first, last, unit, number } = (run ? runLanes : talkLanes)(session.lanes, inner);
  const labels = h("div", { class: "names" }), svg = s("svg", {}), sum = { y: 6 };
  const ticks = niceSteps(first, last, Math.max(2, Math.floor(inner / 110))).filter(Number.isInteger), drawnLanes = [];
  found.forEach((lane, at) => {
    const tag = h("span", {}, h("b", {}, lane.name), lane.about);
    tag.style.top = `${sum.y}px`;
    labels.append(tag);
    drawnLanes.push(s("g", {}, lane.draw(sum.y, at, inner)));
    sum.y += Math.max(lane.height, lane.about.length > 16 ? (room < 560 ? 74 : 58) : 40) + LANE_GAP;
  });
  fill(svg, { width: inner, height: sum.y + 22, viewBox: `0 0 ${inner} ${sum.y + 22}` }, [ticks.map((tick) => [s("path", { class: "grid", d: `M${x(tick)} 0V${sum.y}` }), s("text", { x: x(tick), y: sum.y + 16, "text-anchor": x(tick) > inner - 25 ? "end" : x(tick) < 25 ? "start" : "middle" }, unit + tick)]), drawnLanes]);
  const scroll = h("div", { class: "scroll", tabindex: inner > room - names ? "0" : null, role: inner > room - names ? "region" : null, "aria-label": inner > room - names ? "Timeline, scrolls sideways" : null }, chart(svg, `Timeline of ${session.name}`));
  requestAnimationFrame(() => { scroll.scrollLeft = scroll.scrollWidth; });
  return h("div", {}, h("div", { class: "lanes" }, labels, scroll), number < session.rows ? h("p", { class: "soft" }, `The last ${count(number)} of ${plural(session.rows, run ? "turn" : "message")}.`) : null);
};

const asTable = (session) => {
  const fold = h("details", {}, h("summary", { class: "soft" }, "The same as a table"));
  fold.addEventListener("toggle", () => {
    if (fold.children.length > 1) return;
    const list = [...rows.values()].filter((row) => row.session === session.name && row.session_kind === session.kind && row.kind !== "exchange").sort((a, b) => (a.at || "").localeCompare(b.at || ""));
    const made = table(null, [{ name: "when" }, { name: "what" }, { name: "text" }], []), rest = made.querySelector("tbody");
    fold.append(made, growing(rest, list, (row) => h("tr", {}, h("td", {}, time(row.at)), h("td", {}, h("a", { href: link(`${row.kind}-${row.id}`) }, `${kindName(row.kind)} ${title(row)}`), fate(row) ? ` (${fate(row)})` : ""), h("td", { dir: "auto" }, short(row.text, 240))), 40, 100));
  });
  return fold;
};

const startTimeline = () => {
  const sessions = data.sessions.filter((session) => (session.lanes.turns || session.lanes.messages)?.marks.length);
  if (!sessions.length) { byId("lanes").append(h("p", { class: "empty" }, "No run and no conversation yet.")); byId("session").closest("label").hidden = true; return; }
  // Runs first: their lanes tell most. Within a kind the latest first, as the data comes.
  const pick = byId("session");
  for (const [kind, name] of [["run", "Runs"], ["conversation", "Conversations"]]) {
    const own = sessions.filter((session) => session.kind === kind);
    if (own.length) pick.append(h("optgroup", { label: name }, own.map((session) => h("option", { value: sessions.indexOf(session) }, `${session.name} (${plural(session.rows, kind === "run" ? "turn" : "message")})`))));
  }
  const show = () => {
    const session = sessions[Number(pick.value)], place = h("div", { class: "chart" }), room = h("div", {});
    place.append(room);
    byId("lanes").replaceChildren(place, h("p", { class: "soft" }, time(session.first_at), " to ", time(session.last_at)), asTable(session));
    drawn(room, drawLanes(session));
  };
  pick.selectedIndex = 0;
  pick.addEventListener("change", show);
  show();
  if (data.sessions_total > data.sessions.length) byId("lanes").after(h("p", { class: "soft" }, `The latest ${count(data.sessions.length)} of ${plural(data.sessions_total, "session")}.`));
};
