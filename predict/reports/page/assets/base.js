"use strict";
// Building blocks of all charts and tables: elements, numbers for people, scales, tables that sort.
const SVG = "http://www.w3.org/2000/svg";
const GIB = 2 ** 30;

function set(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") node.style.cssText = value;  // a content policy forbids the attribute as text
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of [children].flat(3)) if (child !== undefined && child !== null && child !== false) node.append(child);
  return node;
}
function el(name, attributes, ...children) { return set(document.createElement(name), attributes, children); }
function draw(name, attributes, ...children) { return set(document.createElementNS(SVG, name), attributes, children); }

function significant(value) { return String(Number(value.toPrecision(3))); }
function grouped(value) { return Math.round(value).toLocaleString("en-US"); }
// As reports/text.py: a probability in whole percent, its ends called so.
function chance(share) { return share < 0.01 ? "less than 1 %" : share > 0.99 ? "more than 99 %" : `${(100 * share).toFixed(0)} %`; }
// As sampling/number_text.py: three digits with the zeros at their end, three decimals at most, no sign on what rounds to nothing.
function figure(value) {
  const exponent = Number(value.toExponential(2).split("e")[1]);
  const decimals = Math.min(3, Math.max(0, 2 - exponent));
  const text = value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return /[1-9]/.test(text) ? text.replace("-", "−") : "0";
}
function duration(us) {
  const [size, unit] = [[3.6e9, "h"], [1e6, "s"], [1e3, "ms"]].find(([limit]) => Math.abs(us) >= 0.9995 * limit) || [1, "µs"];
  return figure(us / size) + " " + unit;
}
function percent(share, digits = 1) { return (100 * share).toFixed(digits).replace("-", "−") + " %"; }
function signed(text, value) { return value > 0 ? "+" + text : text.replace("-", "−"); }
function gib(bytes) { return (bytes / GIB).toFixed(Math.abs(bytes / GIB) < 10 ? 2 : 1).replace("-", "−"); }
function worded(value) { return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value); }
function rate(value) { return value >= 10 ? grouped(value) : significant(value); }
function range(interval) { return duration(interval.low) + " to " + duration(interval.high); }
function short(number) { return number >= 1024 && number % 1024 === 0 ? number / 1024 + "k" : String(number); }

function ticks(most, count, least = 0) {
  const rough = (most - least) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough) || power;
  const found = [];
  for (let at = Math.ceil(least / step) * step; at <= most * 1.0001; at += step) found.push(at);
  return found;
}

// A chart that is drawn anew when its width changes. `paint(svg, width)` returns its height.
function chart(name, title, paint) {
  const svg = draw("svg", { role: "img", "aria-label": title, class: "chart-" + name });
  const box = el("div", { class: "chart" }, svg);
  let drawn = 0;
  const redraw = () => {
    const width = Math.max(300, Math.floor(box.clientWidth || 600));
    svg.replaceChildren();
    const height = paint(svg, width);
    set(svg, { viewBox: `0 0 ${width} ${height}`, width, height });
    drawn = width;
  };
  new ResizeObserver(() => { if (box.clientWidth && Math.abs(box.clientWidth - drawn) > 1) redraw(); }).observe(box);
  box.redraw = redraw;
  requestAnimationFrame(() => { if (!drawn) redraw(); });
  return box;
}
function label(x, y, text, attributes) { return draw("text", { x, y, ...attributes }, text); }
function tip(text) { return draw("title", {}, text); }
function readable(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000000" : "#ffffff";
}
function legend(entries) {
  return el("ul", { class: "legend" }, entries.map(([name, colour]) =>
    el("li", {}, draw("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, draw("rect", { width: 10, height: 10, style: `fill: ${colour}` })), name)));
}

// columns: [heading, row → value, value → text, "text" for words]
function table(columns, rows, options = {}) {
  const body = el("tbody");
  const heads = columns.map(([name, , , kind], place) => el("th", { scope: "col", class: kind }, options.fixed ? name :
    el("button", { type: "button", onclick: () => order(place) }, name)));
  const fill = (sorted) => body.replaceChildren(...sorted.map((row) => el("tr", { class: row.own && "own" },
    columns.map(([, value, show, kind]) => {
      const given = value(row);
      const changed = options.changed && options.changed(row, given);
      return el("td", { class: [kind, changed && "changed"].filter(Boolean).join(" ") || null }, show && given !== undefined && given !== null ? (show.length > 1 ? show(given, row) : show(given)) : given ?? "");
    }))));
  function order(place) {
    const down = heads[place].getAttribute("aria-sort") !== "descending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[place].setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = columns[place][1], sign = down ? -1 : 1;
    const missing = (each) => each === undefined || each === null;
    fill([...rows].sort((one, two) => {
      const [a, b] = [key(one), key(two)];
      if (missing(a) || missing(b)) return missing(a) - missing(b);
      return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b)));
    }));
  }
  fill(rows);
  return el("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": options.caption || "table" },
    el("table", {}, options.caption && el("caption", {}, options.caption), el("thead", {}, el("tr", {}, heads)), body));
}
function behind(...content) { return el("details", {}, el("summary", {}, "Table"), content); }
