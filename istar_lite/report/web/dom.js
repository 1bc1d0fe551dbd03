// Making elements. Whatever was stored reaches the page as text nodes and attribute values only: there is no
// innerHTML anywhere, and the page's policy forbids every other script.
const byId = (id) => document.getElementById(id);

const fill = (element, props, children) => {
  for (const [name, value] of Object.entries(props || {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width" && element instanceof HTMLElement) element.style.width = value;  // a style attribute would be refused
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child != null && child !== false) element.append(child);
  return element;
};
const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
const s = (tag, props, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

const count = (number) => Number(number || 0).toLocaleString();
const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many || one + "s"}`;
const percent = (share) => (share >= 0.995 || share === 0 ? Math.round(share * 100) : share < 0.01 ? "<1" : Math.round(share * 100)) + " %";
const days = (number) => (number < 1 / 24 ? `${Math.max(1, Math.round(number * 1440))} min` : number < 1 ? `${Math.round(number * 24)} h`
  : number < 10 ? `${number.toFixed(1)} days` : `${count(Math.round(number))} days`);
const short = (text, most) => { const line = (text || "").replace(/\s+/g, " ").trim(); return line.length > most ? line.slice(0, most - 1) + "…" : line; };

const formats = { day: new Intl.DateTimeFormat(undefined, { dateStyle: "medium" }), minute: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }) };
const told = (at, format = "minute") => { const date = new Date(at); return Number.isNaN(date.getTime()) ? String(at) : formats[format].format(date); };
const time = (at, format) => h("time", { datetime: at, title: at }, told(at, format));

const say = (text) => { byId("live").textContent = text; };
const quietly = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// A list that shows its first part, and more when asked: thousands of elements at once would make the page slow.
const growing = (list, items, make, first, step = 100) => {
  let shown = 0;
  const button = h("button", { type: "button", class: "more", onclick: () => { const from = shown; grow(step); list.children[from]?.querySelector("a,button,summary")?.focus(); } });
  const grow = (by) => {
    for (const item of items.slice(shown, shown + by)) list.append(make(item));
    shown = Math.min(items.length, shown + by);
    button.hidden = shown >= items.length;
    button.textContent = `Show ${count(Math.min(step, items.length - shown))} more of ${count(items.length)}`;
  };
  grow(first);
  return button;
};

const table = (caption, heads, rows) => h("div", { class: "table" }, h("table", {},
  caption && h("caption", {}, caption),
  h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: head.num && "num" }, head.name)))),
  h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", { class: heads[at].num && "num", dir: heads[at].num ? null : "auto" }, cell ?? "")))))));
