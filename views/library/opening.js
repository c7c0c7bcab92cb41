// Enter on a row of the table of experiments presses the name in the row, which opens the
// experiment. The table itself knows arrows and Space, and presses a cell for the pointer only.
const LATE = 300;  // Milliseconds after which the focus has followed the arrows to their row.

export default ({ parentElement }) => {
  const page = parentElement.ownerDocument;
  const table = () => page.activeElement?.closest(".st-key-experiments-table canvas");
  const press = () => {
    const row = /^glide-cell-\d+-(\d+)$/.exec(page.activeElement?.id ?? "")?.[1];
    const canvas = table();
    if (row === undefined || !canvas) return;
    const frame = canvas.closest(".stDataFrame");
    const rows = Number(canvas.querySelector("table").getAttribute("aria-rowcount"));
    const height = frame.querySelector(".dvn-scroll-inner").getBoundingClientRect().height / rows;
    const scrolled = frame.querySelector(".dvn-scroller").scrollTop;
    const box = canvas.getBoundingClientRect();
    // The names are the pinned first column, right of the boxes to tick; the titles are a row.
    const at = {
      bubbles: true, clientX: box.left + 60,
      clientY: box.top + height * (Number(row) + 1.5) - scrolled,
    };
    for (const kind of ["pointerdown", "pointerup"]) {
      canvas.dispatchEvent(new PointerEvent(kind, at));
    }
  };
  const hear = (event) => {
    if (event.key === "Enter" && table()) setTimeout(press, LATE);
  };
  page.addEventListener("keydown", hear, true);
  return () => page.removeEventListener("keydown", hear, true);
};
