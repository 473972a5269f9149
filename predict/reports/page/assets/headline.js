// The answer in figures, and where two or more runs differ.
function headline(run) {
  const found = run.prediction, step = found.step_time_us, memory = found.memory, cost = run.cost;
  const tone = memory.verdict === "AT RISK" ? "RISK" : memory.verdict;
  const card = (name, value, note, kind) => el("div", { class: "card" }, el("dt", {}, name), el("dd", { class: kind }, value, note && el("small", {}, note)));
  const money = cost && cost.cost && (/^[A-Za-z]*$/.test(cost.currency) ? `${grouped(cost.cost.median)} ${cost.currency || "at the price given"}` : `${cost.currency}${grouped(cost.cost.median)}`);
  const sources = Object.entries(found.sources).filter(([, share]) => share >= 0.0005).map(([name, share]) => `${percent(share, 0)} ${name}`).join(", ");
  return el("div", {}, run.misfit && el("p", { class: "warning" }, run.misfit, run.fits_with && el("small", {}, "fits with: " + run.fits_with)),
    el("dl", { class: "cards" },
      card("step time", duration(step.median), "90 %: " + range(step)),
      card("tokens/s/GPU", rate(found.tokens_per_second_per_gpu), `${rate(found.tokens_per_second)} tokens/s on ${grouped(run.gpus)} GPUs`),
      card("MFU", percent(found.mfu), conventions(run) ? el("details", {}, el("summary", {}, "other conventions"), "shown as PaLM counts, without the embedding look-up; " + conventions(run)) : `bubble ${percent(found.bubble_fraction)}`),
      card("memory", memory.verdict, `${gib(memory.point_bytes)} of ${gib(memory.capacity_bytes)} GiB, ${gib(Math.abs(memory.headroom_bytes))} ${memory.headroom_bytes < 0 ? "too much" : "free"}; fits in ${chance(memory.fits_probability)} of runs`, tone),
      card("rests on", sources.split(", ")[0], sources.split(", ").slice(1).join(", ") || "shares of the step's work"),
      cost && card("training", `${rate(cost.days.median)} days`, `${grouped(cost.gpu_hours.median)} GPU-hours at ${percent(cost.goodput, 0)} goodput${money ? ", " + money : ""}`)),
    found.notes.map((note) => el("p", { class: "note" }, note)));
}
function conventions(run) {
  return run.mfu && Object.entries(run.mfu).map(([name, value]) => `${name} ${typeof value === "number" ? percent(value) : "–"}`).join(" · ");
}
function comparison(runs) {
  const paths = Object.keys(runs[0].settings).filter((path) => runs.some((run) => worded(run.settings[path]) !== worded(runs[0].settings[path])));
  const figures = [["step time", (r) => r.prediction.step_time_us.median, duration], ["step, 90 % from", (r) => r.prediction.step_time_us.low, duration], ["step, to", (r) => r.prediction.step_time_us.high, duration],
    ["tokens/s/GPU", (r) => r.prediction.tokens_per_second_per_gpu, rate], ["MFU", (r) => r.prediction.mfu, percent], ["bubble", (r) => r.prediction.bubble_fraction, percent],
    ["memory, GiB", (r) => r.prediction.memory.point_bytes, gib], ["verdict", (r) => r.prediction.memory.verdict]];
  const classes = [...new Set(runs.flatMap((run) => run.waterfall.map((bar) => bar.name)))];
  const rows = [...figures.map(([name, value, show]) => ({ name, values: runs.map(value), show })),
    ...classes.map((name) => ({ name, values: runs.map((run) => run.waterfall.find((bar) => bar.name === name)?.us ?? 0), show: duration })),
    ...paths.map((path) => ({ name: path, values: runs.map((run) => worded(run.settings[path])) }))];
  return sideBySide(rows, runs);
}
// A column for each run; what differs from the first is marked, and figures have their change.
function sideBySide(rows, runs) {
  // shares differ by points, other figures by a share of the first run's
  const change = (row, at) => {
    if (!at || typeof row.values[0] !== "number" || !row.values[0] || row.values[at] === row.values[0]) return "";
    const more = row.values[at] - row.values[0];
    return ` (${row.show === percent ? signed((100 * more).toFixed(1), more) + " points" : signed(percent(more / row.values[0]), more)})`;
  };
  const columns = [["figure or setting", (r) => r.name, null, "text"], ...runs.map((run, at) => [run.name, (r) => r.values[at], (value, r) => (r.show ? r.show(value) : value) + change(r, at), "text"])];
  return table(columns, rows, { caption: "Differences from the first run are marked", fixed: true, changed: (row, given) => given !== row.name && String(given) !== String(row.values[0]) });
}
