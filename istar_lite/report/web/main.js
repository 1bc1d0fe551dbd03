const startHead = () => {
  const total = data.counts.reduce((sum, row) => sum + row.rows, 0), shown = [...rows.values()].filter((row) => row.kind !== "exchange").length;
  byId("title").textContent = data.title;
  byId("made").append(data.namespace === "default" ? "" : `Namespace ${data.namespace} · `, "as it was on ", time(data.now));
  const live = (kind) => data.counts.filter((row) => row.kind === kind && row.status === "active").reduce((sum, row) => sum + row.rows, 0);
  const tokens = data.calls.reduce((sum, row) => sum + row.tokens_in + row.tokens_out, 0);
  const figures = [["memory", "memories live"], ["atom", "atoms kept"], ["episode", "episodes"], ["profile", "lessons"], ["observation", "observations"], ["turn", "turns"], ["message", "messages"]].map(([kind, name]) => [live(kind), name]).filter(([number]) => number);
  figures.push([data.due.length, "work due"], [tokens, "tokens used"]);
  byId("figures").append(...figures.map(([number, name]) => h("li", {}, h("b", {}, count(number)), h("span", {}, name))));
  if (shown < total) { byId("part").hidden = false; byId("part").textContent = `This page shows ${count(shown)} of the ${count(total)} rows in the file: what is known now first, then what gave way lately, then what they came from, then the latest turns and messages. The file has them all.`; }
};

const startTheme = () => {
  const button = byId("theme"), root = document.documentElement, dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const tell = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", dark() ? "Switch to light colours" : "Switch to dark colours"); };
  button.removeAttribute("aria-pressed");
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; tell(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  tell();
};

const startNav = () => {
  const links = [...document.querySelectorAll("nav a")];
  const seen = new IntersectionObserver((entries) => { for (const entry of entries) if (entry.isIntersecting) for (const each of links) { if (each.hash === `#${entry.target.id}`) each.setAttribute("aria-current", "location"); else each.removeAttribute("aria-current"); } }, { rootMargin: "-15% 0px -75% 0px" });
  for (const each of links) seen.observe(byId(each.hash.slice(1)));
};

startHead();
startTheme();
startKnown();
startTimeline();
startFading();
startLayers();
startMap();
startGone();
startWork();
startNav();
follow();
document.documentElement.dataset.ready = "yes";
