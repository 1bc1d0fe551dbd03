// Texts of the page whose colour stands out less than 4.5 : 1 from what lies behind them (WCAG AA), as a list.
(() => {
  const parse = (text) => {
    const n = text.match(/[\d.]+/g).map(Number);
    return text.startsWith("color(") ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3]));
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const poor = new Set();
  for (const element of document.querySelectorAll("body *")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    if (element.closest("svg, noscript, script, .quiet") || !element.checkVisibility()) continue;
    const below = ground(element), colour = over(parse(getComputedStyle(element).color), below);
    const [low, high] = [light(colour), light(below)].sort((a, b) => a - b), ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.add(`${element.tagName} ${element.className} ${ratio.toFixed(2)} ${element.textContent.slice(0, 20)}`);
  }
  return [...poor];
})()
