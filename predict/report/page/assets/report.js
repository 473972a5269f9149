// The report's own start: its content lies in the page.
{
  const page = JSON.parse(document.getElementById("content").textContent);
  document.getElementById("about").append(...title(page));
  show(page, document.querySelector("main"), page.sections);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { if (each.closest("section")) each.open = true; }));
}
