// A click on a header sorts its table by that column, a second one turns the order round.
// Numbers sort as numbers, cells without a number go last either way.
for (const button of document.querySelectorAll("th button")) {
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
