// The page: a section for each question, its runs next to each other.
function sectioned(title, note, runs, build) {
  if (!runs.length) return null;
  const made = runs.map((run) => build(run));
  if (made.every((each) => !each)) return null;
  return el("section", {}, el("h2", {}, title), note && el("p", { class: "note" }, note),
    el("div", { class: "runs" }, made.map((each, at) => each && el("div", {}, runs.length > 1 && el("h3", {}, runs[at].name), each))));
}
function assumptions(run) {
  return table([["kind", (r) => r.kind, null, "text"], ["what", (r) => r.name, null, "text"], ["value", (r) => r.value, null, "text"], ["source", (r) => r.source, null, "text wide"]], run.assumptions, { caption: "Assumptions and their sources" });
}
function settings(run) {
  const rows = Object.entries(run.settings).map(([path, value]) => ({ path, value: worded(value) }));
  return behind(table([["key", (r) => r.path, null, "text"], ["value", (r) => r.value, null, "text wide"]], rows));
}
function rl(page) { return page.runs.filter((run) => run.spans); }
const SECTIONS = {
  headline: (page) => sectioned("Answer", null, page.runs, headline),
  differences: (page) => page.runs.length > 1 && el("section", {}, el("h2", {}, "Side by side"), comparison(page.runs)),
  rl_headline: (page) => sectioned("Answer", null, rl(page), stepHeadline),
  rl_differences: (page) => rl(page).length > 1 && el("section", {}, el("h2", {}, "Side by side"), stepDifferences(rl(page))),
  placement: (page) => sectioned("Placement", "What the GPUs do over a step; waiting stands in one piece.", rl(page), placement),
  phases: (page) => sectioned("Phases", "Each with its 90 % interval, from where it starts in the step.", rl(page), (run) => el("div", {}, waterfall(run), phaseTable(run))),
  moments: (page) => sectioned("Memory", "A GPU in the moments in which it holds the most.", rl(page), moments),
  waterfall: (page) => sectioned("Where the step goes", "Mean over the pipeline ranks, with 90 % intervals by the bounds of the calls; the step's own interval also holds what no single call's bounds cover.", page.runs, waterfall),
  memory: (page) => sectioned("Memory", "Each pipeline rank at its peak.", page.runs, memory),
  timeline: (page) => sectioned("Pipeline", null, page.runs, timeline),
  job: (page) => typeof wholeJob === "function" && sectioned("The whole job", "With its saves, failures and evaluations, as predict job has them by default.", page.runs, wholeJob),
  heatmap: (page) => sectioned("Throughput by sequence and batch", null, page.runs, heatMap),
  plans: (page) => page.plans.length > 1 && el("section", {}, el("h2", {}, page.search ? "Plans found" : page.runs.length > 1 ? "Plans" : "Neighbours of this plan"),
    el("p", { class: "note" }, page.search ? "" : page.runs.length > 1 ? "" : "One setting changed at a time; dp takes the ranks that are left."),
    plans(page.plans, page.runs[0].memory.capacity_bytes, page.search, page.cloud)),
  sensitivity: (page) => sectioned("Sensitivity", "Change of the step; blue is faster, orange slower.", page.runs, tornado),
  ledgers: (page) => typeof ledgers === "function" && sectioned("Ledgers", null, page.runs, ledgers),
  sources: (page) => sectioned("Assumptions and sources", null, page.runs, (run) => el("div", {}, el("h3", {}, "Settings"), settings(run), el("details", {}, el("summary", {}, `${run.assumptions.length} assumptions, each with its source`), assumptions(run)))),
};
// Runs next to each other are drawn to one scale, unless they are so unlike that one of them would vanish.
function scaled(runs) {
  const steps = runs.map((run) => run.prediction.step_time_us.high), bytes = runs.map((run) => run.memory.point_bytes);
  const alike = (values) => Math.max(...values) < 6 * Math.min(...values) ? Math.max(...values) : 0;
  const spans = runs.map((run) => run.prediction.step_time_us.median);
  return runs.map((run) => ({ ...run, scale: { step: alike(steps), span: alike(spans), bytes: alike(bytes) } }));
}
function show(given, into, names) {
  const page = { ...given, runs: scaled(given.runs) };
  into.replaceChildren(...(names || Object.keys(SECTIONS)).map((name) => SECTIONS[name](page)).filter(Boolean));
}
function title(page) { return page.runs.map((run) => el("p", {}, page.runs.length > 1 && el("strong", {}, run.name + "  "), run.about)); }
