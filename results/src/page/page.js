document.documentElement.classList.add("script");

// A click on a header sorts its table by that column, a second one turns the order round.
// Numbers sort as numbers, cells without a number go last either way.
for (const button of document.querySelectorAll(".sorts th button")) {
  button.addEventListener("click", () => {
    const header = button.closest("th");
    const column = header.cellIndex;
    const body = header.closest("table").tBodies[0];
    const numeric = header.classList.contains("number");
    const was = header.getAttribute("aria-sort");
    // The first click on numbers puts the largest first: that is what people look for.
    const descending = was === "none" ? numeric : was === "ascending";
    const value = (row) => {
      const cell = row.cells[column];
      if (!numeric) return cell.textContent;
      return "value" in cell.dataset ? Number(cell.dataset.value) : null;
    };
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      const sign = numeric ? x - y : x.localeCompare(y, "en", { numeric: true });
      return descending ? -sign : sign;
    };
    body.append(...Array.from(body.rows).sort(order));
    for (const other of header.parentElement.cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  });
}

// Rows of tables, and runs, that hold every word of the filter.
const filter = document.getElementById("filter");
const rows = document.querySelectorAll(".sorts tbody tr, details:not(.shared), .runs li");
const texts = Array.from(rows, (row) => (row.querySelector("summary") ?? row).textContent.toLowerCase());
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, index) => {
    row.hidden = !words.every((word) => texts[index].includes(word));
    shown += !row.hidden;
  });
  document.getElementById("found").textContent = words.length ? `${shown} of ${rows.length} rows` : "";
});

// Entries of a legend hide their series, and light it up below the pointer.
for (const figure of document.querySelectorAll("figure")) {
  const boxes = Array.from(figure.querySelectorAll(".legend input"));
  const parts = (box) => figure.querySelectorAll(`svg:not(.key) [data-series="${box.dataset.index}"]`);
  const apply = (box) => parts(box).forEach((part) => part.toggleAttribute("hidden", !box.checked));
  const light = (box, on) => parts(box).forEach((part) => part.classList.toggle("lit", on));
  for (const box of boxes) {
    box.addEventListener("change", () => apply(box));
    const label = box.closest("label");
    label.addEventListener("pointerenter", () => light(box, true));
    label.addEventListener("pointerleave", () => light(box, false));
  }
  for (const button of figure.querySelectorAll("[data-show]")) {
    button.addEventListener("click", () => {
      for (const box of boxes) {
        box.checked = button.dataset.show === "all";
        apply(box);
      }
    });
  }
}
