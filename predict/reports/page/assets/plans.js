// Plans next to each other: throughput against memory with the Pareto front, behind them all that a search priced, and a table that sorts.
function plans(rows, capacity, search, cloud = []) {
  const run = rows.filter((row) => !row.reason), refused = rows.filter((row) => row.reason);
  if (!run.length) return null;
  const picture = chart("pareto", "Plans by memory and throughput", (svg, width) => {
    const left = 58, height = 230, inner = width - left - 20;
    const all = [...run, ...cloud];
    const mostX = Math.max(...all.map((r) => r.memory_bytes), ...(capacity <= 1.6 * Math.max(...run.map((r) => r.memory_bytes)) ? [capacity] : [])) * 1.08;
    const values = all.map((r) => r.tokens_per_second_per_gpu), top = Math.max(...values) * 1.06, low = Math.max(0, Math.min(...values) * 0.94 - 0.04 * top);
    const leastX = 0.9 * Math.min(...all.map((r) => r.memory_bytes)), fromX = leastX > 0.4 * mostX ? leastX : 0;
    const x = (bytes) => left + (inner * (bytes - fromX)) / (mostX - fromX), y = (value) => 8 + (height * (top - value)) / (top - low || 1);
    for (const tick of ticks(top, 5, low)) svg.append(draw("line", { class: "axis", x1: left, x2: width - 20, y1: y(tick), y2: y(tick) }), label(left - 8, y(tick) + 4, rate(tick), { class: "soft", "text-anchor": "end" }));
    for (const tick of ticks(mostX / GIB, width / 110, fromX / GIB)) svg.append(label(x(tick * GIB), height + 24, significant(tick), { class: "soft", "text-anchor": "middle" }));
    svg.append(label(width - 20, height + 40, "memory per GPU, GiB", { class: "soft", "text-anchor": "end" }), label(0, height + 40, "tokens/s/GPU ↑", { class: "soft" }));
    if (capacity < mostX) svg.append(draw("line", { class: "limit", x1: x(capacity), x2: x(capacity), y1: 8, y2: height + 8 }));
    const front = run.filter((r) => r.front).sort((a, b) => a.memory_bytes - b.memory_bytes);
    if (front.length > 1) svg.append(draw("path", { class: "front", d: "M" + front.map((r) => `${x(r.memory_bytes)},${y(r.tokens_per_second_per_gpu)}`).join("L") }));
    for (const r of cloud) svg.append(draw("circle", { class: "mark cloud", cx: x(r.memory_bytes), cy: y(r.tokens_per_second_per_gpu), r: 2.5 },
      tip(`${r.settings}: ${duration(r.step_us)}, ${rate(r.tokens_per_second_per_gpu)} tokens/s/GPU, ${gib(r.memory_bytes)} GiB`)));
    // this plan first: its label goes before those of others, and none covers its point
    const ordered = [...run].sort((one, two) => Boolean(two.own) - Boolean(one.own)), placed = [];
    for (const r of ordered) {
      const [cx, cy] = [x(r.memory_bytes), y(r.tokens_per_second_per_gpu)], oom = r.verdict === "OOM";
      svg.append(draw("circle", { class: "mark", cx, cy, r: r.own ? 6 : 4.5, style: oom ? "fill: var(--paper); stroke: var(--bad); stroke-width: 1.6" : r.own ? "fill: var(--ink)" : r.front ? "fill: var(--accent)" : "fill: var(--soft)" },
        tip(`${r.settings ? `plan ${r.label}: ${r.settings}` : r.label}: ${duration(r.step_us.median)}, ${rate(r.tokens_per_second_per_gpu)} tokens/s/GPU, ${gib(r.memory_bytes)} GiB, ${r.verdict}`)));
      if (r.own) placed.push([cx - 6, cy - 6, cx + 6, cy + 6]);
      const half = 4 + 3.4 * r.label.length, toLeft = cx + 2 * half + 8 > width;
      const box = [toLeft ? cx - 2 * half : cx + 7, cy - 8, toLeft ? cx - 7 : cx + 2 * half, cy + 8];
      if (run.length <= 40 && !placed.some((b) => b[0] < box[2] && box[0] < b[2] && b[1] < box[3] && box[1] < b[3])) {
        placed.push(box);
        svg.append(label(cx + (toLeft ? -9 : 9), cy + 4, r.label, { "font-size": 11, "text-anchor": toLeft ? "end" : "start", "font-weight": r.own ? 600 : 400 }));
      }
    }
    return height + 46;
  });
  const columns = [["plan", (r) => r.label, null, "text"], ...(run[0].settings ? [["settings", (r) => r.settings, null, "text wide"]] : []),
    ["step", (r) => r.step_us?.median, duration], ["90 %", (r) => r.step_us && range(r.step_us)], ["tokens/s/GPU", (r) => r.tokens_per_second_per_gpu, rate], ["MFU", (r) => r.mfu, percent],
    ["headroom, GiB", (r) => r.headroom_bytes, gib], ["communication", (r) => r.communication, percent], ["bubble", (r) => r.bubble, percent],
    ["fits", (r) => r.verdict, null, "text"], ["front", (r) => (r.front ? "yes" : ""), null, "text"]];
  return el("div", {}, picture, legend([["on the front of throughput and memory", "var(--accent)"], ["other", "var(--soft)"], [search ? "best plan" : "this plan", "var(--ink)"]]), table(columns, run, { caption: "Plans" }),
    refused.length > 0 && el("details", {}, el("summary", {}, `${refused.length} neighbours cannot run`), table([["plan", (r) => r.label, null, "text"], ["why", (r) => r.reason, null, "text wide"]], refused)),
    search && el("p", { class: "note" }, `${grouped(search.plans)} plans, ${grouped(search.legal)} legal, ${grouped(search.priced)} priced; best by ${search.objective}. Left out: ` +
      Object.entries(search.left_out).map(([reason, count]) => `${reason} (${grouped(count)})`).join("; ")));
}
