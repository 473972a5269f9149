// The ledgers of a run as tables that sort.
function ledgers(run) {
  if (!run.ledgers) return null;
  return el("div", {}, Object.entries(run.ledgers).map(([name, book]) => el("details", {}, el("summary", {}, name), book.map((each) => each.rows.length > 0 && ledger(each)))));
}
function ledger(book) {
  const columns = book.columns.map(([name, unit], place) => [name, (row) => row.values[place], SHOWN[unit] || null, unit === "text" ? "text" : null]);
  return table(columns, book.rows.map((values) => ({ values })), { caption: book.title });
}
const SHOWN = { us: duration, bytes: (value) => gib(value) + " GiB", share: percent, number: (value) => (Math.abs(value) >= 1e9 ? value.toExponential(3) : value.toLocaleString("en-US", { maximumFractionDigits: 3 })) };
