// What the charts share: tips, one tab stop for all marks of a chart and arrow keys between them, drawing to width.
const tip = byId("tip");
const showTip = (mark) => {
  tip.textContent = mark.getAttribute("aria-label");
  tip.hidden = false;
  const box = mark.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const below = box.top - own.height - 10 < 0;
  tip.style.left = `${Math.max(6, Math.min(innerWidth - own.width - 6, box.left + Math.min(box.width, 400) / 2 - own.width / 2))}px`;
  tip.style.top = `${below ? box.bottom + 8 : box.top - own.height - 8}px`;
};
const hideTip = () => { tip.hidden = true; };
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
// The tip goes along with a mark that has the focus, and away from one that only had the pointer over it.
addEventListener("scroll", () => { const on = document.activeElement; if (!tip.hidden && on?.matches(".mark")) showTip(on); else hideTip(); }, { passive: true, capture: true });

const mark = (key, label, lane, x, ...children) => s("a", { href: link(key), class: `mark k-${known(split(key)[0])}`, "aria-label": label, tabindex: "-1", "data-lane": lane, "data-x": x }, children);

const chart = (svg, name) => {
  const marks = [...svg.querySelectorAll(".mark")];
  fill(svg, { role: "group", "aria-label": `${name}. ${plural(marks.length, "mark")}; arrow keys go from one to the next, Enter opens it.` }, []);
  if (marks.length) marks[0].setAttribute("tabindex", "0");
  const go = (to, from) => { from.setAttribute("tabindex", "-1"); to.setAttribute("tabindex", "0"); to.focus(); to.scrollIntoView({ block: "nearest", inline: "nearest" }); showTip(to); };
  const beside = (from, step) => {
    const lane = Number(from.dataset.lane), x = Number(from.dataset.x);
    for (let next = lane + step; next >= 0 && next < 12; next += step) {
      const there = marks.filter((each) => Number(each.dataset.lane) === next);
      if (there.length) return there.reduce((best, each) => (Math.abs(each.dataset.x - x) < Math.abs(best.dataset.x - x) ? each : best));
    }
    return null;
  };
  svg.addEventListener("keydown", (event) => {
    const from = event.target.closest?.(".mark"), at = marks.indexOf(from);
    if (at < 0) return;
    const to = { ArrowRight: () => marks[at + 1], ArrowLeft: () => marks[at - 1], Home: () => marks[0], End: () => marks.at(-1), ArrowDown: () => beside(from, 1), ArrowUp: () => beside(from, -1) }[event.key];
    if (!to) return;
    event.preventDefault();
    const found = to();
    if (found) go(found, from);
  });
  for (const [event, act] of [["pointerover", showTip], ["focusin", showTip]]) svg.addEventListener(event, (each) => { const found = each.target.closest?.(".mark"); if (found) act(found); });
  for (const event of ["pointerout", "focusout"]) svg.addEventListener(event, hideTip);
  return svg;
};

// Draws `make(width)` into `place`, again whenever its width changes.
const drawn = (place, make) => {
  let width = 0;
  const draw = () => { const now = Math.floor(place.clientWidth); if (now > 0 && now !== width) { width = now; place.replaceChildren(make(now)); } };
  new ResizeObserver(draw).observe(place);
  return () => { width = 0; draw(); };
};

const niceSteps = (low, high, most) => {
  const raw = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw) || power;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(Math.round(at * 1e6) / 1e6);
  return found;
};
const unpack = (lane) => (lane?.marks || []).map((values) => Object.fromEntries(lane.columns.map((name, at) => [name, values[at]])));
