// Tokens per second and GPU by sequence length and microbatch, or what else the columns and rows are; cells that do not fit are hatched.
function mixed(share) { return `color-mix(in srgb, var(--heat-high) ${Math.round(100 * share)}%, var(--heat-low))`; }
function heatMap(run) {
  const map = run.heat_map;
  if (!map) return null;
  const of = (cell) => cell.tokens_per_second_per_gpu;
  const best = Math.max(...map.cells.filter((cell) => cell.verdict && cell.verdict !== "OOM").map(of), 1e-9);
  const described = (cell) => cell.reason ? "cannot run: " + cell.reason : `${rate(of(cell))} tokens/s/GPU, MFU ${percent(cell.mfu)}, ${gib(cell.memory_bytes)} GiB, ${cell.verdict}`;
  const picture = chart("heat-map", `Throughput of ${run.name} by ${map.column} and ${map.row}`, (svg, width) => {
    const left = 74, row = 34, wide = (width - left) / map.sequences.length, id = "hatch-" + Math.random().toString(36).slice(2);
    svg.append(draw("defs", {}, draw("pattern", { id, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      draw("rect", { width: 7, height: 7, style: "fill: var(--faint)" }), draw("rect", { width: 2.2, height: 7, style: "fill: var(--bad)", "fill-opacity": 0.55 }))));
    for (const cell of map.cells) {
      const x = left + map.sequences.indexOf(cell.sequence) * wide, y = 2 + (map.microbatches.length - 1 - map.microbatches.indexOf(cell.microbatch)) * row;
      const oom = cell.verdict === "OOM", share = cell.reason ? 0 : Math.min(1, of(cell) / best);
      const style = cell.reason ? "fill: none; stroke: var(--line)" : oom ? `fill: url(#${id})` : `fill: ${mixed(share)}`;
      const text = cell.reason ? "–" : oom ? "OOM" : rate(of(cell));
      svg.append(draw("g", {}, draw("rect", { class: "mark", "data-verdict": cell.verdict || "none", x: x + 1, y: y + 1, width: wide - 2, height: row - 2, style }, tip(described(cell))),
        label(x + wide / 2, y + row / 2 + 4, text, { "text-anchor": "middle", "pointer-events": "none", style: cell.reason ? "fill: var(--soft)" : oom ? "fill: var(--ink); paint-order: stroke; stroke: var(--faint); stroke-width: 4px" : share > 0.55 ? "fill: var(--paper)" : "fill: var(--ink)" })));
      if (cell.sequence === map.own[0] && cell.microbatch === map.own[1]) svg.append(draw("rect", { class: "own", x: x + 1, y: y + 1, width: wide - 2, height: row - 2 }));
    }
    map.microbatches.forEach((micro, place) => svg.append(label(left - 8, 2 + (map.microbatches.length - 1 - place) * row + row / 2 + 4, map.row.replace("microbatch", "micro") + " " + micro, { "text-anchor": "end" })));
    const bottom = 2 + map.microbatches.length * row;
    map.sequences.forEach((length, place) => svg.append(label(left + (place + 0.5) * wide, bottom + 15, short(length), { "text-anchor": "middle" })));
    svg.append(label(width, bottom + 32, map.column, { class: "soft", "text-anchor": "end" }));
    return bottom + 38;
  });
  return el("div", {}, el("p", { class: "note" }, `${map.note[0].toUpperCase() + map.note.slice(1)}; outlined: this run; hatched: does not fit; –: cannot run.`), picture,
    behind(table([[map.column, (c) => c.sequence], [map.row, (c) => c.microbatch], ["tokens/s/GPU", of, rate], ["MFU", (c) => c.mfu, percent], ["GiB", (c) => c.memory_bytes, gib],
      ["fits", (c) => c.verdict ?? "", null, "text"], ["why it cannot run", (c) => c.reason ?? "", null, "text wide"]], map.cells)));
}
