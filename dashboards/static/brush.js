// Brushes on parallel coordinates: dragging along an axis keeps the trials that cross it there, a click on it keeps all.
// A brush is a word of the address, `brush=lr*20*60` in per cent of the axis: the server says which trials it keeps.
(() => {
  "use strict";
  const REACH_PIXELS = 24;
  const LEAST_PIXELS = 5;
  const area = document.querySelector("[data-brush]");
  const figure = area?.querySelector("[data-figure]");
  if (!figure) return;
  let drag = null;

  // Where the pointer is: the number of the axis, and its place on it in per cent.
  function place(event) {
    const box = figure.querySelector(".nsewdrag")?.getBoundingClientRect();
    if (!box || !figure.layout?.xaxis?.range) return null;
    const { xaxis, yaxis } = figure.layout;
    const along = ([from, to], share) => from + (to - from) * share;
    const x = along(xaxis.range, (event.clientX - box.left) / box.width);
    const y = along(yaxis.range, (box.bottom - event.clientY) / box.height);
    return { axis: Math.round(x), off: Math.abs(x - Math.round(x)) * box.width / (xaxis.range[1] - xaxis.range[0]), share: 100 * Math.min(Math.max(y, 0), 1) };
  }

  area.addEventListener("pointerdown", (event) => {
    const found = event.button ? null : place(event);
    const names = [...JSON.parse(area.dataset.brush), "loss"];
    if (!found || found.off > REACH_PIXELS || !(found.axis in names) || event.target.closest(".figure-files")) return;
    drag = { axis: names[found.axis], from: found.share, y: event.clientY, x: event.clientX, mark: document.createElement("div") };
    drag.mark.className = "brushing";
    area.append(drag.mark);
    area.setPointerCapture(event.pointerId);
    event.preventDefault();
  });

  area.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const { left, top } = area.getBoundingClientRect();
    const { style } = drag.mark;
    style.left = `${drag.x - left - 7}px`;
    style.top = `${Math.min(drag.y, event.clientY) - top}px`;
    style.height = `${Math.abs(event.clientY - drag.y)}px`;
  });

  function end(event) {
    if (!drag) return;
    const { axis, from, y, mark } = drag;
    const to = place(event)?.share;
    mark.remove();
    drag = null;
    if (event.type === "pointercancel" || to === undefined) return;
    const url = new URL(location.href);
    const others = url.searchParams.getAll("brush").filter((word) => !word.startsWith(`${axis}*`));
    url.searchParams.delete("brush");
    for (const word of others) url.searchParams.append("brush", word);
    const word = [axis, ...[from, to].sort((one, other) => one - other).map((share) => Number(share.toFixed(1)))].join("*");
    if (Math.abs(event.clientY - y) >= LEAST_PIXELS) url.searchParams.append("brush", word);
    const link = document.createElement("a");
    link.href = `${url.pathname}${url.search}`;
    link.dataset.view = "";
    area.append(link);
    link.click();
    link.remove();
  }
  area.addEventListener("pointerup", end);
  area.addEventListener("pointercancel", end);
})();
