const MERGED = 4; // px; boxes of one kind that are less apart are merged where they are thin
// The pipeline: a row a rank, an action a block; zoom by keys, buttons or wheel; a click shows what an action is made of.
function timeline(run) {
  const found = run.timeline, rows = found.ranks.map((rank) => unpacked(rank));
  const end = Math.max(...rows.map((row) => row.ends[row.ends.length - 1]));
  const operators = found.operators, kinds = ["F", "B", "W", "BW"];
  let from = 0, to = end, picked = { row: 0, at: 0 };
  const detail = el("div", { class: "panel", "aria-live": "polite" }), left = 52, rowHeight = rows.length > 24 ? 15 : 24;
  const name = (row, at) => {
    const code = row.codes[at];
    if (typeof code === "string") return code;
    const chunk = code % found.chunks;
    return `${found.kinds[kinds[Math.floor(code / found.chunks)]]} of microbatch ${row.microbatches[at]}` + (found.chunks > 1 ? `, chunk ${chunk} (stage ${row.stages[chunk]})` : "");
  };
  const picture = chart("timeline", `Pipeline timeline of ${run.name}, ${found.schedule}, bubble ${percent(found.bubble)}`, (svg, width) => {
    const inner = width - left, x = (us) => left + (inner * (us - from)) / (to - from), bottom = 2 + rows.length * rowHeight;
    rows.forEach((row, place) => {
      const y = 2 + place * rowHeight, paths = new Map(), texts = [];
      const thin = (inner * (row.ends[0] - row.starts[0])) / (to - from) < 3;
      svg.append(label(left - 8, y + rowHeight / 2 + 3, "rank " + row.rank, { "text-anchor": "end", "font-size": rowHeight < 16 ? 10 : 12 }),
        draw("rect", { class: "idle", x: left, y: y + 1, width: inner, height: rowHeight - 3 }));
      for (let at = search(row.ends, from); at < row.starts.length && row.starts[at] < to; at++) {
        const a = Math.max(left, x(row.starts[at])), b = Math.min(width, x(row.ends[at])), code = row.codes[at];
        const path = paths.get(code) || { boxes: [], count: 0 }, last = path.boxes[path.boxes.length - 1];
        if (thin && last && a - last[1] < MERGED) last[1] = b; else path.boxes.push([a, b]);
        path.count++;
        paths.set(code, path);
        if (b - a > 16 && typeof code === "number" && rowHeight > 16) texts.push(label((a + b) / 2, y + rowHeight / 2 + 4, row.microbatches[at], { "text-anchor": "middle", "font-size": 11, "pointer-events": "none", style: `fill: ${readable(found.colours[code])}` }));
      }
      for (const [code, path] of paths) {
        const [top, high] = lane(code, thin, y + 1, rowHeight - 3);
        const d = path.boxes.map(([a, b]) => `M${a.toFixed(1)},${top}H${Math.max(a + 0.3, b - (b - a > 3 ? 0.5 : 0)).toFixed(1)}v${high}H${a.toFixed(1)}Z`).join("");
        svg.append(draw("path", { class: "mark", "data-count": path.count, d, fill: found.colours[code] }));
      }
      svg.append(...texts);
    });
    const row = rows[picked.row], a = Math.max(left, x(row.starts[picked.at])), b = Math.min(width, x(row.ends[picked.at]));
    if (b > left && a < width) svg.append(draw("rect", { class: "picked", x: a, y: 2 + picked.row * rowHeight, width: Math.max(2, b - a), height: rowHeight - 1 }));
    for (const tick of ticks(to - from, width / 130)) svg.append(label(x(from + tick), bottom + 15, duration(from + tick), { class: "soft", "text-anchor": tick ? "middle" : "start" }));
    return bottom + 20;
  });
  // blocks too thin to see stand in lanes, forwards above backwards: one after the other they would be a barcode
  function lane(code, thin, top, high) {
    if (!thin || typeof code === "string") return [top, high];
    const kinds_here = [...new Set(Object.keys(found.colours).filter((each) => !isNaN(each)).map((each) => Math.floor(each / found.chunks)))];
    const each = high / kinds_here.length;
    return [top + each * kinds_here.indexOf(Math.floor(code / found.chunks)), each - 0.5];
  }
  function show() {
    const row = rows[picked.row], code = row.codes[picked.at], [start, stop] = [row.starts[picked.at], row.ends[picked.at]];
    const number = typeof code === "string" ? row[code].operators : row.actions[code].operators;
    const of = operators[number].map(([operator, group, count, us, source]) => ({ operator, group, count, us, source }));
    const share = (r) => r.us / Math.max(1e-9, of.reduce((sum, each) => sum + each.us, 0));
    detail.replaceChildren(el("h3", {}, `rank ${row.rank}: ${name(row, picked.at)}, ${duration(stop - start)} from ${duration(start)}`),
      of.length ? table([["operator", (r) => r.operator, null, "text wide"], ["counts as", (r) => r.group, null, "text"], ["count", (r) => r.count, (v) => significant(v)], ["time", (r) => r.us, duration], ["share", share, percent], ["source", (r) => r.source, null, "text"]], of, { caption: "Operators of the picked action" }) : el("p", { class: "soft" }, "no work of its own"));
  }
  function zoom(factor, about) {
    const middle = about ?? (rows[picked.row].starts[picked.at] + rows[picked.row].ends[picked.at]) / 2;
    const span = Math.min(end, Math.max(end / 5e4, (to - from) / factor)), part = Math.min(1, Math.max(0, (middle - from) / (to - from)));
    move(middle - span * part, span);
  }
  function move(start, span) {
    from = Math.max(0, Math.min(end - span, start)); to = from + span;
    picture.redraw();
  }
  function pick(row, at) {
    picked = { row, at: Math.max(0, Math.min(rows[row].starts.length - 1, at)) };
    const [a, b] = [rows[row].starts[picked.at], rows[row].ends[picked.at]];
    if (b <= from || a >= to) move(a - (to - from) / 3, to - from); else picture.redraw();
    show();
  }
  const keys = {
    ArrowRight: () => pick(picked.row, picked.at + 1), ArrowLeft: () => pick(picked.row, picked.at - 1),
    ArrowDown: () => across(1), ArrowUp: () => across(-1), "+": () => zoom(1.6), "=": () => zoom(1.6), "-": () => zoom(1 / 1.6), 0: () => move(0, end), Home: () => pick(picked.row, 0), End: () => pick(picked.row, 1e9),
  };
  function across(by) {
    const row = Math.max(0, Math.min(rows.length - 1, picked.row + by));
    pick(row, search(rows[row].ends, rows[picked.row].starts[picked.at]));
  }
  const time = (event) => { const box = picture.getBoundingClientRect(); return from + ((event.clientX - box.left - left) / (box.width - left)) * (to - from); };
  const frame = el("div", { class: "timeline", tabindex: 0, role: "group", "aria-label": `Pipeline timeline of ${run.name}. Arrow keys pick an action, plus and minus zoom, 0 shows all.`,
    onkeydown: (event) => { const act = keys[event.key]; if (act && !event.ctrlKey && !event.metaKey) { event.preventDefault(); act(); } },
    onwheel: (event) => { if (event.ctrlKey || event.shiftKey) { event.preventDefault(); zoom(event.deltaY < 0 ? 1.25 : 0.8, time(event)); } },
    onclick: (event) => {
      const row = Math.floor((event.clientY - picture.getBoundingClientRect().top - 2) / rowHeight), at = time(event);
      if (row >= 0 && row < rows.length && at >= from) pick(row, search(rows[row].ends, at));
    } }, picture);
  const button = (text, act) => el("button", { type: "button", onclick: act }, text);
  const left_out = found.left_out_us > 0 ? ` ${duration(found.left_out_us)} of repeats of the steady state are left out of the picture.` : "";
  const shown = Object.keys(found.colours).filter((code) => !isNaN(code)).map((code) => [found.kinds[kinds[Math.floor(code / found.chunks)]] + (found.chunks > 1 ? ` ${code % found.chunks}` : ""), found.colours[code]]);
  show();
  return el("div", {}, legend([...(shown.length <= 8 ? shown : shown.filter((_, at) => at % found.chunks === 0)), ["gradients", found.colours.gradients], ["optimizer", found.colours.optimizer]]),
    el("div", { class: "bar" }, button("Zoom in", () => zoom(2)), button("Zoom out", () => zoom(0.5)), button("All", () => move(0, end)), button("◀", () => move(from - (to - from) / 2, to - from)), button("▶", () => move(from + (to - from) / 2, to - from)),
      el("span", { class: "note" }, `${found.schedule}, ${grouped(found.microbatches)} microbatches, bubble ${percent(found.bubble)}.${left_out} Click an action, or focus the picture and use the arrow keys, + and −.`)),
    frame, detail, behind(table([["rank", (r) => r.rank], ["stages", (r) => r.stages.join(", "), null, "text"], ["actions", (r) => r.codes.length - 2, grouped],
      ["busy", busy, duration], ["busy share", (r) => busy(r) / end, percent], ["gradients", (r) => r.gradients.us, duration], ["optimizer", (r) => r.optimizer.us, duration]], rows, { caption: "Pipeline ranks" })));
}
function busy(row) { return row.starts.reduce((sum, start, at) => sum + row.ends[at] - start, 0); }
function unpacked(rank) {
  let at = 0;
  const starts = rank.steps.map((step) => (at += step));
  const ends = starts.map((start, place) => start + (rank.unusual[place] ?? rank.actions[rank.codes[place]].us));
  const codes = [...rank.codes], last = ends.length ? ends[ends.length - 1] : 0;
  codes.push("gradients", "optimizer");
  starts.push(last, last + rank.gradients.us);
  ends.push(last + rank.gradients.us, last + rank.gradients.us + rank.optimizer.us);
  return { ...rank, starts, ends, codes };
}
// the first place whose value is above `least`, in ascending values
function search(values, least) {
  let low = 0, high = values.length;
  while (low < high) { const middle = (low + high) >> 1; if (values[middle] > least) high = middle; else low = middle + 1; }
  return low;
}
