// Forms that post. Buttons that ask something of runs (pause, resume, retry, cancel) post to the REST interface; here they
// are sent without leaving the page, which is then loaded anew: what it shows is always what the server renders. Other
// forms, which people have written into, leave their page only once the service answers: else the browser would put its
// own page about that in the place of what was written.
(() => {
  "use strict";
  document.addEventListener("submit", async (event) => {
    const form = event.target.closest?.("form[data-run-action]");
    if (!form) return;
    event.preventDefault();
    if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
    const button = form.querySelector("button");
    button.disabled = true;
    let trouble = null;
    try {
      const answer = await fetch(form.action, { method: "POST", headers: { Accept: "application/json" } });
      if (!answer.ok) trouble = (await answer.json()).detail ?? answer.statusText;
    } catch {
      trouble = "The service does not answer; try again when it is back.";
    }
    if (trouble === null) { location.reload(); return; }
    button.disabled = false;
    alert(trouble);
  });

  // What can be done with a selection, once something is selected.
  function offer() {
    for (const button of document.querySelectorAll(".selection button")) {
      button.disabled = ![...button.form.elements].some((box) => box.type === "checkbox" && box.checked);
    }
  }
  for (const news of ["change", "bench:refresh"]) document.addEventListener(news, offer);
  addEventListener("pageshow", offer);  // after a step back the browser ticks the boxes again
  offer();

  const PATIENCE_MILLISECONDS = 10_000;
  const AWAY = "The service does not answer. Nothing was sent, and what you wrote is still here.";
  const certain = new WeakSet();

  const HEALTH = new URL("healthz", document.querySelector(".brand").href);  // the service may stand below a path
  // Whatever it answers: only a proxy before a service that is away says 502 or 504.
  async function answers() {
    try {
      const { status } = await fetch(HEALTH, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MILLISECONDS) });
      return ![502, 504].includes(status);
    } catch { return false; }
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target.closest?.('form[method="post"]:not([data-run-action])');
    if (!form || certain.delete(form)) return;
    event.preventDefault();
    const asked = event.submitter;
    if (form.dataset.asking) return;
    form.dataset.asking = "";
    const there = await answers();
    delete form.dataset.asking;
    form.querySelector(".form-away")?.remove();
    if (there) {
      certain.add(form);
      form.requestSubmit(asked);
      return;
    }
    const again = document.createElement("button");
    Object.assign(again, { type: "button", className: "quiet-button", textContent: "Try again" });
    again.addEventListener("click", () => form.requestSubmit(asked));
    const note = document.createElement("p");
    note.className = "form-away bad-text";
    note.setAttribute("role", "alert");
    note.append(`${AWAY} `, again);
    (asked?.parentElement ?? form.lastElementChild).before(note);
  });
})();
