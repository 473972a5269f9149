// The report's own start: its content lies in the page.
{
  const page = JSON.parse(document.getElementById("content").textContent);
  document.getElementById("about").append(...title(page));
  show(page, document.querySelector("main"), page.sections);
  // charts are drawn anew to the width of paper, so that their text is as large as the page's
  const redrawn = (printing) => { document.body.classList.toggle("printing", printing); document.querySelectorAll(".chart").forEach((each) => each.redraw()); };
  addEventListener("beforeprint", () => redrawn(true));
  addEventListener("afterprint", () => redrawn(false));
}
