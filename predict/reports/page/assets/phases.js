// An RL step: the answer in figures, what trainer and engines do over the step, and the memory of its moments.
function stepHeadline(run) {
  const found = run.prediction, step = found.step_time_us, memory = run.memory;
  const card = (name, value, note, kind) => el("div", { class: "card" }, el("dt", {}, name), el("dd", { class: kind }, value, note && el("small", {}, note)));
  const longest = [...run.waterfall].sort((one, two) => two.us - one.us)[0];
  const sources = Object.entries(found.sources).filter(([, share]) => share >= 0.0005).sort((one, two) => two[1] - one[1]).map(([name, share]) => `${percent(share, 0)} ${name}`);
  const free = memory.capacity_bytes - memory.point_bytes, apart = lanesOf(run).length > 1;
  return el("div", {}, run.misfit && el("p", { class: "warning" }, run.misfit),
    el("dl", { class: "cards" },
      card("step time", duration(step.median), "90 %: " + range(step)),
      card("tokens/s/GPU", rate(found.tokens_per_second_per_gpu), `of prompts and responses, on ${grouped(run.gpus)} GPUs`),
      card("longest phase", longest.name.replaceAll("_", "_\u200b"), `${duration(longest.us)}, bound by ${longest.bound_by}`),
      card("long tail", percent(found.tail_share, 0), "of an engine's time for the last tenth of its responses"),
      card("memory", memory.verdict, `${gib(memory.point_bytes)} of ${gib(memory.capacity_bytes)} GiB, ${gib(Math.abs(free))} ${free < 0 ? "too much" : "free"}`, memory.verdict === "AT RISK" ? "RISK" : memory.verdict),
      card("rests on", sources[0], sources.slice(1).join(", ") || "share of the phases' time"),
      apart && card("waiting", duration(found.wait_gen_us), `trainer; engines ${duration(found.idle_gen_us)}`),
      apart && card("staleness", significant(found.queue.staleness), `updates; ${significant(found.queue.generating)} steps of samples in the engines, ${significant(found.queue.waiting)} in the queue`)),
    found.unknown.length > 0 && el("p", { class: "note" }, "A guess in this config: " + found.unknown.join(", ")),
    found.notes.map((note) => el("p", { class: "note" }, note)));
}
function lanesOf(run) { return [...new Set(run.spans.map((span) => span.lane))]; }
function placement(run) {
  const lanes = lanesOf(run), step = run.prediction.step_time_us.median;
  const picture = chart("placement", `Placement of a step of ${run.name}: ${duration(step)}`, (svg, width) => {
    const left = 72, row = 40, inner = width - left - 8, most = run.scale.span || step;
    const x = (us) => left + (inner * us) / most;
    for (const span of run.spans) {
      const y = 4 + lanes.indexOf(span.lane) * row, wide = (inner * span.time_us) / most;
      svg.append(draw("rect", { class: "mark", "data-us": span.time_us, x: x(span.start_us), y, width: Math.max(1, wide), height: row - 8, fill: span.colour }, tip(`${span.lane}, ${span.name}: ${duration(span.time_us)}, from ${duration(span.start_us)}`)));
      if (wide > 7 * span.name.length + 6) svg.append(label(x(span.start_us) + 5, y + row / 2, span.name, { "font-size": 11, style: `fill: ${readable(span.colour)}`, "pointer-events": "none" }));
    }
    lanes.forEach((lane, at) => svg.append(label(left - 8, 4 + at * row + row / 2, lane, { "text-anchor": "end" })));
    const bottom = 4 + lanes.length * row;
    for (const tick of ticks(most, width / 130)) svg.append(label(x(tick), bottom + 14, duration(tick), { class: "soft", "text-anchor": tick ? "middle" : "start" }));
    return bottom + 20;
  });
  const shown = [...new Map(run.spans.map((span) => [span.name, span.colour]))];
  return el("div", {}, legend(shown), picture, behind(table([["GPUs", (r) => r.lane, null, "text"], ["phase", (r) => r.name, null, "text"], ["from", (r) => r.start_us, duration], ["time", (r) => r.time_us, duration], ["share", (r) => r.time_us / step, percent]],
    run.spans, { caption: "On each lane, phases and waiting add up to the step" })));
}
function phaseTable(run) {
  return table([["phase", (r) => r.name, null, "text"], ["bound by", (r) => r.bound_by, null, "text"], ["time", (r) => r.us, duration], ["90 % from", (r) => r.low, duration], ["to", (r) => r.high, duration], ["GPUs", (r) => r.gpus, grouped],
    ["PFLOP", (r) => r.flops, (value) => significant(value / 1e15)], ["MFU by palm", (r) => r.mfu, percent], ["MFU by verl", (r) => r.mfu_verl, percent]], run.waterfall, { caption: "Phases under verl's names" });
}
function moments(run) {
  const found = run.memory, most = Math.max(found.capacity_bytes * 1.04, run.scale.bytes, ...found.moments.map((each) => each.peak));
  const picture = chart("moments", `Memory per GPU of ${run.name}`, (svg, width) => {
    const left = 96, right = 58, row = 27, inner = width - left - right, x = (bytes) => left + (inner * bytes) / most;
    found.moments.forEach((moment, place) => {
      const y = 2 + place * row;
      let at = 0;
      svg.append(label(left - 8, y + row / 2 + 4, moment.phase, { "text-anchor": "end" }));
      for (const term of found.terms) {
        const bytes = moment[term] || 0, wide = x(at + bytes) - x(at);
        if (bytes) svg.append(draw("rect", { class: "mark", "data-bytes": bytes, x: x(at), y: y + 1, width: wide, height: row - 5, fill: found.colours[term] }, tip(`${moment.phase}, ${term}: ${gib(bytes)} GiB`)));
        if (wide > 7 * term.length + 6) svg.append(label(x(at) + 5, y + row / 2 + 3, term, { "font-size": 11, style: `fill: ${readable(found.colours[term])}`, "pointer-events": "none" }));
        at += bytes;
      }
      svg.append(label(x(at) + 6, y + row / 2 + 3, gib(moment.peak), { "font-weight": moment.peak === found.point_bytes ? 600 : 400 }));
    });
    const bottom = 2 + found.moments.length * row;
    svg.append(draw("line", { class: "limit", x1: x(found.capacity_bytes), x2: x(found.capacity_bytes), y1: 0, y2: bottom + 4 }), label(x(found.capacity_bytes), bottom + 16, `${gib(found.capacity_bytes)} GiB`, { class: "limit", "text-anchor": "middle" }));
    return bottom + 22;
  });
  return el("div", {}, legend(found.terms.map((term) => [term, found.colours[term]])), picture,
    behind(table([["moment", (r) => r.phase, null, "text"], ...found.terms.map((term) => [term, (r) => r[term], gib]), ["peak", (r) => r.peak, gib]], found.moments, { caption: `GiB per GPU; the cache holds ${gib(found.kv_used)} GiB at most` })));
}
function stepDifferences(runs) {
  const names = [...new Set(runs.flatMap((run) => run.waterfall.map((bar) => bar.name)))], paths = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  const rows = [["step time", (r) => r.prediction.step_time_us.median, duration], ["tokens/s/GPU", (r) => r.prediction.tokens_per_second_per_gpu, rate], ["memory, GiB", (r) => r.memory.point_bytes, gib], ["GPUs", (r) => r.gpus, grouped],
    ...names.map((name) => [name, (r) => r.waterfall.find((bar) => bar.name === name)?.us ?? 0, duration]),
    ...paths.filter((path) => runs.some((run) => worded(run.settings[path]) !== worded(runs[0].settings[path]))).map((path) => [path, (r) => worded(r.settings[path]), null])]
    .map(([name, value, show]) => ({ name, values: runs.map(value), show }));
  return sideBySide(rows, runs);
}
