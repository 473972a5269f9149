// Memory: the terms of each pipeline rank at its peak, and of one rank over the step.
function memory(run) {
  const found = run.memory, colours = found.colours, terms = found.terms;
  const capacity = found.capacity_bytes, peaks = found.ranks.map((rank) => rank.peak);
  const peak = Math.max(run.scale.bytes, ...peaks), filled = peak >= 0.3 * capacity;
  const most = filled ? Math.max(capacity * 1.04, peak) : peak * 1.15;
  const stack = chart("memory", `Memory of each pipeline rank of ${run.name}, ${found.verdict}`, (svg, width) => {
    const left = 52, right = 58, row = found.ranks.length > 24 ? 13 : 23, inner = width - left - right;
    const x = (bytes) => left + (inner * bytes) / most;
    found.ranks.forEach((rank, place) => {
      const y = 2 + place * row;
      let at = 0;
      svg.append(label(left - 8, y + row / 2 + 4, "rank " + rank.rank, { "text-anchor": "end", "font-size": row < 16 ? 10 : 12 }));
      for (const term of terms) {
        const bytes = rank[term], wide = x(at + bytes) - x(at);
        svg.append(draw("rect", { class: "mark", "data-bytes": bytes, x: x(at), y: y + 1, width: Math.max(0, wide), height: row - 3, fill: colours[term] }, tip(`rank ${rank.rank}, ${term}: ${gib(bytes)} GiB`)));
        if (place === 0 && wide > 7 * term.length + 6 && row > 16) svg.append(label(x(at) + 5, y + row / 2 + 4, term, { "font-size": 11, style: `fill: ${readable(colours[term])}`, "pointer-events": "none" }));
        at += bytes;
      }
      svg.append(label(x(at) + 6, y + row / 2 + 4, gib(rank.peak), { "font-weight": rank.rank === found.worst_rank ? 600 : 400 }));
    });
    const bottom = 2 + found.ranks.length * row;
    if (filled) svg.append(draw("line", { class: "limit", x1: x(capacity), x2: x(capacity), y1: 0, y2: bottom + 4 }),
      label(x(capacity), bottom + 16, `${gib(capacity)} GiB`, { class: "limit", "text-anchor": "middle" }));
    else svg.append(label(width, bottom + 16, `capacity ${gib(capacity)} GiB lies beyond the picture`, { class: "limit", "text-anchor": "end" }));
    return bottom + 22;
  });
  const columns = [["rank", (r) => r.rank], ["layers", (r) => r.layers], ...terms.map((term) => [term, (r) => r[term], gib]), ["peak", (r) => r.peak, gib], ["when", (r) => r.when.action, null, "text"]];
  return el("div", {}, legend(terms.map((term) => [term, colours[term]])), stack,
    behind(table(columns, found.ranks, { caption: "GiB per GPU at the peak of each pipeline rank" })), course(run));
}

function course(run) {
  const found = run.memory, courses = found.course, terms = found.terms, mib = 2 ** 20;
  let shown = courses.find((each) => each.rank === found.worst_rank) || courses[0];
  const picture = chart("course", `Memory of a pipeline rank over the step of ${run.name}`, (svg, width) => {
    const left = 52, right = 14, height = 150, inner = width - left - right;
    const count = shown.terms_mib[terms[0]].length;
    const totals = Array.from({ length: count }, (_, at) => terms.reduce((sum, term) => sum + shown.terms_mib[term][at], 0));
    const peak = Math.max(...totals) * mib, near = peak >= 0.3 * found.capacity_bytes;
    const most = near ? Math.max(found.capacity_bytes, peak) * 1.05 : peak * 1.15;
    const x = (at) => left + (inner * at) / count, y = (bytes) => 6 + height * (1 - bytes / most);
    let below = Array(count).fill(0);
    for (const term of terms) {
      const above = below.map((from, at) => from + shown.terms_mib[term][at] * mib);
      const top = above.map((bytes, at) => `${x(at).toFixed(1)},${y(bytes).toFixed(1)}H${x(at + 1).toFixed(1)}`).join("L");
      const back = below.map((bytes, at) => `${x(at + 1).toFixed(1)},${y(bytes).toFixed(1)}H${x(at).toFixed(1)}`).reverse().join("L");
      svg.append(draw("path", { class: "mark", d: `M${top}L${back}Z`, fill: found.colours[term] }, tip(term)));
      below = above;
    }
    for (const tick of ticks(most / GIB, 5)) svg.append(label(left - 8, y(tick * GIB) + 4, significant(tick), { "text-anchor": "end", class: "soft" }));
    if (near) svg.append(draw("line", { class: "limit", x1: left, x2: width - right, y1: y(found.capacity_bytes), y2: y(found.capacity_bytes) }));
    const end = shown.edges_us[1];
    for (const tick of ticks(end, width / 130)) svg.append(label(left + (inner * tick) / end, height + 22, duration(tick), { class: "soft", "text-anchor": tick ? "middle" : "start" }));
    return height + 28;
  });
  const choice = el("select", { onchange: (event) => { shown = courses[Number(event.target.value)]; picture.redraw(); } },
    courses.map((each, place) => el("option", { value: place, selected: each === shown }, `rank ${each.rank}${each.rank === found.worst_rank ? " (fullest)" : ""}`)));
  return el("div", {}, el("h3", {}, "Over the step"), el("label", { class: "bar" }, "GiB of pipeline", choice), picture);
}
