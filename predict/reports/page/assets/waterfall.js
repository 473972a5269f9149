// The step from left to right: each class of work begins where the one above ends; whiskers are 90 % intervals.
function waterfall(run) {
  const bars = run.waterfall, step = run.prediction.step_time_us;
  const most = Math.max(run.scale.step, step.high, ...bars.map((bar) => (bar.start || 0) + bar.high));
  const title = `Waterfall of a step of ${run.name}: ${duration(step.median)}`;
  const picture = chart("waterfall", title, (svg, width) => {
    const left = 104, right = width < 560 ? 62 : 212, row = 27, inner = width - left - right;
    const x = (us) => left + (inner * us) / most;
    let start = 0;
    bars.forEach((bar, place) => {
      start = bar.start ?? start;  // phases may overlap
      const y = 4 + place * row;
      const about = Object.entries(bar.headings).map(([name, us]) => `${name} ${duration(us)}`).join(", ");
      svg.append(draw("g", { class: "row" },
        label(left - 8, y + 16, bar.name, { "text-anchor": "end" }),
        draw("rect", { class: "mark", "data-us": bar.us, x: x(start), y: y + 3, width: Math.max(1, (inner * bar.us) / most), height: row - 8, fill: bar.colour }, tip(`${bar.name}: ${duration(bar.us)} (90 %: ${range(bar)})\n${about}`)),
        whisker(x(start + bar.low), x(start + bar.high), y + row / 2 - 1),
        value(width, y + 16, bar.us, bar)));
      start += bar.us;
      if (place < bars.length - 1 && bar.start === undefined) svg.append(draw("line", { class: "axis", x1: x(start), x2: x(start), y1: y + row - 5, y2: y + row + 3 }));
    });
    const y = 10 + bars.length * row;
    svg.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: y - 4, y2: y - 4 }),
      label(left - 8, y + 16, "step", { "text-anchor": "end", "font-weight": 600 }),
      draw("rect", { x: x(0), y: y + 3, width: x(step.median) - x(0), height: row - 8, fill: "currentColor", "fill-opacity": 0.25 }, tip(`step ${duration(step.median)} (90 %: ${range(step)})`)),
      whisker(x(step.low), x(step.high), y + row / 2 - 1), value(width, y + 16, step.median, step));
    return y + row + 4;
    function value(w, at, us, interval) {
      const wide = right > 100;
      return [label(w - (wide ? 140 : 0), at, duration(us), { "text-anchor": "end", "font-weight": 600 }),
        wide && label(w, at, range(interval), { "text-anchor": "end", class: "soft", "font-size": 11 })];
    }
  });
  const rows = bars.flatMap((bar) => [{ ...bar, of: bar.us / step.median },
    ...Object.entries(bar.headings).map(([name, us]) => ({ name: "    " + name, us, of: us / step.median }))]);
  return el("div", {}, picture, behind(table([
    ["part", (r) => r.name, null, "text"], ["time", (r) => r.us, duration], ["share", (r) => r.of, percent],
    ["90 % from", (r) => r.low, duration], ["to", (r) => r.high, duration]], rows, { caption: run.spans ? "Parts of a phase below it" : "Mean over pipeline ranks; parts of a class below it" })));
}
function whisker(from, to, y) {
  return draw("path", { class: "whisker", fill: "none", d: `M${from},${y}H${to}M${from},${y - 4}V${y + 4}M${to},${y - 4}V${y + 4}` });
}
