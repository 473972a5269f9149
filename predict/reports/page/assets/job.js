// The whole job: its days and cost, where its hours go, and what would shorten it.
function wholeJob(run) {
  const job = run.job;
  if (!job) return null;
  const within = (span) => `90 %: ${rate(span.low)} to ${rate(span.high)}`;
  const card = (name, value, note) => el("div", { class: "card" }, el("dt", {}, name), el("dd", {}, value, el("small", {}, note)));
  const named = (parts) => Object.entries(parts).map(([name, hours]) => ({ name, hours })).filter((each) => each.hours > 0);
  const parts = named(job.parts_hours), whole = parts.reduce((sum, each) => sum + each.hours, 0);
  const hours = (of) => [["hours", (r) => r.hours, rate], ["share", (r) => r.hours / of, (share) => percent(share, 2)]];
  const minutes = (value) => value >= 60 ? `${significant(value / 60)} h` : `${significant(value)} min`;
  return el("div", {},
    el("dl", { class: "cards" },
      card("days", rate(job.days.median), within(job.days)),
      card("GPU-hours", rate(job.gpu_hours.median), within(job.gpu_hours)),
      job.cost && card("cost", rate(job.cost.median) + " " + job.plain.currency, within(job.cost)),
      job.energy && card("energy", rate(job.energy.total_mwh.median) + " MWh", within(job.energy.total_mwh)),
      card("goodput", percent(job.goodput.median), `90 %: ${percent(job.goodput.low)} to ${percent(job.goodput.high)}`),
      card("failures", rate(job.failures.median), within(job.failures)),
      card("best time between saves", minutes(job.best_save_min), `a save holds steps up for ${duration(1e6 * job.save_s)}`)),
    table([["part", (r) => r.name, null, "text"], ...hours(whole)], parts, { caption: "Where the time goes, mean of the draws" }),
    job.gains.length > 0 && table([["measure", (r) => r.measure, null, "text"], ...hours(job.expected_hours)], job.gains, { caption: "What would shorten it, expected hours" }));
}
