// The explorer: controls of every key on the left; the answer follows each change. Its server is this page's own.
{
  const first = JSON.parse(document.getElementById("content").textContent);
  const known = new Map(first.controls.map((control) => [control.path, control]));
  const shown = new Map(), past = [];
  let settings = {}, latest = first.page, before = null, comparing = false, asked = 0, answered = "{}", following = first.follows || {};
  const answer = document.getElementById("answer"), tools = document.getElementById("tools"), about = document.getElementById("about");
  const status = el("span", { class: "note", role: "status" });
  const found = el("div", { "aria-live": "polite" });

  async function ask(what, given) {
    const reply = await fetch(what, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given) });
    if (!reply.ok) throw new Error(await reply.text());
    return reply.json();
  }
  async function change(next, remember = true, keep = false) {
    if (!keep) found.replaceChildren();  // neighbours, copies and plans of other settings
    if (remember) past.push(settings);
    settings = next;
    undo.disabled = !past.length;
    const turn = ++asked;
    status.textContent = "…";
    let reply;
    try { reply = await ask("answer", settings); } catch (error) { status.textContent = String(error.message || error); return; }
    if (turn !== asked) return;
    mark(reply.faults || {}, reply.follows || {});
    if (reply.faults) { status.textContent = "not possible: see the marked settings"; answer.style.opacity = 0.45; return; }
    const now = JSON.stringify(settings);
    if (now !== answered) { before = latest; answered = now; }
    latest = reply.page;
    status.textContent = `answered in ${significant(reply.server_ms)} ms`;
    paint();
  }
  function paint() {
    const runs = comparing && before ? [{ ...before.runs[0], name: "before" }, { ...latest.runs[0], name: "now" }] : latest.runs;
    answer.style.opacity = 1;
    about.replaceChildren(el("p", {}, latest.runs[0].about));
    show({ ...latest, runs }, answer, first.live);
  }
  // faults stand next to their controls; those of no control stand at the tools
  function mark(faults, follows) {
    following = follows;
    for (const [path, parts] of shown) {
      const problem = faults[path];
      parts.problem.textContent = problem || "";
      parts.input.setAttribute("aria-invalid", problem ? "true" : "false");
      const value = path in settings ? settings[path] : path in follows ? follows[path] : known.get(path).value;
      write(parts.input, known.get(path), value);
      parts.row.classList.toggle("set", path in settings || path in follows);
      parts.reset.hidden = !(path in settings);
      if (problem) for (let up = parts.row.closest("details"); up; up = null) up.open = true;
    }
    general.textContent = Object.entries(faults).filter(([path]) => !shown.has(path)).map(([path, problem]) => (path ? path + ": " : "") + problem).join("\n");
  }
  function write(input, control, value) {
    if (document.activeElement === input && input.type !== "checkbox") { if (control.kind !== "number" && control.kind !== "integer") return; }
    if (control.kind === "boolean") input.checked = Boolean(value);
    else input.value = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : value;
  }
  function read(input, control) {
    if (control.kind === "boolean") return input.checked;
    if (input.value === "") return undefined;
    if ((control.kind === "integer" || control.kind === "number") && input.value.trim() !== "" && !isNaN(Number(input.value))) return Number(input.value);
    if (control.kind === "yaml") { try { return JSON.parse(input.value); } catch { return input.value; } }
    return input.value;
  }
  function field(control) {
    const id = "key-" + control.path.replace(/\./g, "-"), name = control.path.split(".").pop();
    const commit = () => {
      const value = read(input, control), next = { ...settings };
      // the config's own value is a setting where another one would follow
      const own = !(control.path in following) && JSON.stringify(value) === JSON.stringify(control.value);
      if (value === undefined || own) delete next[control.path]; else next[control.path] = value;
      if (JSON.stringify(next) !== JSON.stringify(settings)) change(next);
    };
    const common = { id, name: control.path, "aria-describedby": id + "-problem", onchange: commit };
    let input, list = null;
    if (control.kind === "boolean") input = el("input", { ...common, type: "checkbox" });
    else if (control.kind === "choice") input = el("select", common, control.choices.map((each) => el("option", { value: each }, each || "(none)")));
    else {
      const number = control.kind === "integer" || control.kind === "number";
      if (control.choices.length) list = el("datalist", { id: id + "-list" }, control.choices.map((each) => el("option", { value: each })));
      input = el("input", { ...common, type: "text", inputmode: number ? "decimal" : null, list: list && id + "-list", autocomplete: "off", spellcheck: "false" });
      if (control.kind === "integer") input.addEventListener("keydown", (event) => {
        const by = { ArrowUp: (v) => v * 2, ArrowDown: (v) => Math.max(control.least ?? 0, Math.floor(v / 2)) }[event.key];
        if (by && /^\d+$/.test(input.value)) { event.preventDefault(); input.value = by(Number(input.value)) || (control.least ?? 1); commit(); }
      });
    }
    const problem = el("span", { class: "problem", id: id + "-problem", role: "alert" });
    const reset = el("button", { type: "button", class: "reset", hidden: true, "aria-label": "reset " + control.path, title: "as in the config", onclick: () => { const next = { ...settings }; delete next[control.path]; change(next); } }, "↺");
    const row = el("div", { class: "field" }, el("label", { for: id, title: control.meaning }, name), el("span", { class: "input" }, input, list, reset), problem);
    shown.set(control.path, { input, problem, reset, row });
    write(input, control, control.value);
    return row;
  }
  function groups() {
    const group = (control) => control.path.includes(".") ? control.path.slice(0, control.path.lastIndexOf(".")) : "model and precision";
    const open = ["model and precision", "batch", "plan", "rl", "rl.rollout"];
    return [...new Set(first.controls.map(group))].map((name) => el("details", { open: open.includes(name) }, el("summary", {}, name), first.controls.filter((control) => group(control) === name).map(field)));
  }
  // an answer next to that of the settings; what prevents it is shown
  async function other(what, waiting, failed) {
    status.textContent = waiting;
    const reply = await ask(what, settings).catch((error) => ({ faults: { "": String(error.message || error) } }));
    if (!reply.faults) { status.textContent = ""; return reply; }
    mark(reply.faults, following);
    status.textContent = failed;
    return null;
  }
  async function copy(what) {
    const reply = await other("written", "…", "nothing to copy: see the marked settings");
    if (!reply) return;
    const text = el("textarea", { readonly: true, rows: what === "yaml" ? 9 : 3, "aria-label": what === "yaml" ? "config as YAML" : "settings as options" });
    text.value = reply[what];
    found.replaceChildren(el("section", {}, el("h2", {}, what === "yaml" ? "As YAML" : "As --set"), text));
    try { await navigator.clipboard.writeText(reply[what]); status.textContent = "copied"; } catch { text.select(); status.textContent = "select and copy"; }
  }
  async function study() {
    const reply = await other("studies", "predicting other runs …", "not possible: see the marked settings");
    if (!reply) return;
    const page = { ...latest, runs: [{ ...latest.runs[0], ...reply.run }], plans: reply.plans };
    show(page, found, ["heatmap", "plans", "sensitivity"]);
    found.scrollIntoView();
  }
  // those of the settings that are not the config's own
  function changed(given) { return Object.fromEntries(Object.entries(given).filter(([path, value]) => JSON.stringify(known.get(path)?.value) !== JSON.stringify(value))); }
  async function best() {
    const reply = await other("search", "searching …", "no plan found");
    if (!reply) return;
    const takes = reply.plans.map((plan, at) => el("button", { type: "button", onclick: () => { const others = Object.fromEntries(Object.entries(settings).filter(([path]) => !(path.startsWith("plan.") || path in reply.settings[at]))); change({ ...others, ...changed(reply.settings[at]) }, true, true); scrollTo(0, 0); } }, `Take plan ${plan.label}`));
    found.replaceChildren(el("section", {}, el("h2", {}, "Plans found"), el("div", { class: "bar" }, takes), plans(reply.plans, latest.runs[0].memory.capacity_bytes, reply.search)));
    found.scrollIntoView();
  }
  const button = (text, act) => el("button", { type: "button", onclick: act }, text);
  const back = () => { if (past.length) change(past.pop(), false); };
  const undo = button("Undo", back);
  const compare = el("input", { type: "checkbox", id: "compare", onchange: (event) => { comparing = event.target.checked; paint(); } });
  const general = el("p", { class: "problem", role: "alert" });
  addEventListener("keydown", (event) => { if ((event.ctrlKey || event.metaKey) && event.key === "z" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); back(); } });
  tools.append(...[undo, button("Reset all", () => change({})), el("label", {}, compare, " compare with the last"), button("Copy as YAML", () => copy("yaml")), button("Copy as --set", () => copy("set")), first.studies && button("Neighbours and heat map", study), button(first.studies ? "Search for a plan" : "Search for a split", best), status].filter(Boolean));
  tools.after(general);
  answer.after(found);
  document.getElementById("controls").append(...groups());
  document.getElementById("controls").addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches("input")) event.target.dispatchEvent(new Event("change")); });
  paint();
}
