// What the step depends on: calls at their bounds, and figures of the hardware 10 % better.
function tornado(run) {
  const step = run.prediction.step_time_us.median;
  const calls = run.unknowns.map((each) => ({ name: each.name, below: each.below / step, above: each.above / step }));
  const parts = [el("h3", {}, "One kind of call at its 90 % bounds"), bars(run, "unknowns", calls, "step"),
    behind(table([["calls", (r) => r.name, null, "text"], ["step at the lower bound", (r) => r.below, (v) => signed(percent(v, 2), v)], ["at the upper bound", (r) => r.above, (v) => signed(percent(v, 2), v)]], calls))];
  if (run.sensitivity) {
    const gains = run.sensitivity.figures.filter((each) => Math.abs(each.gain) >= 5e-5).map((each) => ({ name: `${each.name} ${each.change}`.replace(/_/g, " "), below: Math.min(0, -each.gain), above: Math.max(0, -each.gain), step: each.step_us }));
    parts.push(el("h3", {}, "One figure 10 % better"), gains.length ? bars(run, "figures", gains, "step") : el("p", { class: "soft" }, "no figure changes the step"),
      gains.length > 0 && behind(table([["figure", (r) => r.name, null, "text"], ["step", (r) => r.step, duration], ["change", (r) => r.below || r.above, (v) => signed(percent(v, 2), v)]], gains)));
  }
  return el("div", {}, parts);
}
function bars(run, name, rows, what) {
  return chart("tornado-" + name, `Sensitivity of the ${what} of ${run.name}`, (svg, width) => {
    const left = Math.min(210, width * 0.42), edge = 52, row = 20, inner = width - left - 2 * edge;
    const low = Math.min(0, ...rows.map((r) => r.below)), high = Math.max(0, ...rows.map((r) => r.above)), span = high - low || 1;
    const x = (share) => left + edge + (inner * (share - low)) / span;
    rows.forEach((r, place) => {
      const y = place * row;
      svg.append(label(left - 2, y + 14, r.name.length > left / 6 ? r.name.slice(0, Math.floor(left / 6.4)) + "…" : r.name, { "text-anchor": "end" }),
        draw("rect", { class: "mark", "data-share": r.above - r.below, x: x(r.below), y: y + 3, width: Math.max(0.5, x(0) - x(r.below)), height: row - 7, fill: "#2f6fbe" }, tip(r.name)),
        draw("rect", { x: x(0), y: y + 3, width: Math.max(0, x(r.above) - x(0)), height: row - 7, fill: "#d55e00" }, tip(r.name)));
      const digits = Math.max(Math.abs(r.below), Math.abs(r.above)) < 5e-4 ? 2 : 1;
      if (r.below) svg.append(label(x(r.below) - 4, y + 14, percent(r.below, digits), { "text-anchor": "end", class: "soft", "font-size": 11 }));
      if (r.above) svg.append(label(x(r.above) + 4, y + 14, "+" + percent(r.above, digits), { class: "soft", "font-size": 11 }));
    });
    svg.append(draw("line", { x1: x(0), x2: x(0), y1: 0, y2: rows.length * row, stroke: "currentColor" }));
    return rows.length * row + 4;
  });
}
