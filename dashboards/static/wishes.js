// Buttons that ask something of runs: pause, resume, retry, cancel. Each is a form that posts to the REST interface; here
// it is sent without leaving the page, which is then loaded anew: what it shows is always what the server renders.
(() => {
  "use strict";
  document.addEventListener("submit", async (event) => {
    const form = event.target.closest?.("form[data-wish]");
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
})();
