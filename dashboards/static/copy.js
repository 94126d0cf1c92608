// Buttons that copy the text of an element: a command, a specification. They show themselves where the browser lets a page
// copy, which is over HTTPS and on this machine.
(() => {
  "use strict";
  const SAID_MILLISECONDS = 1600;
  if (!navigator.clipboard) return;
  const show = () => document.querySelectorAll("[data-copy][hidden]").forEach((button) => { button.hidden = false; });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    const words = button.textContent;
    let told = "Copied";
    try { await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent); } catch { told = "Not allowed"; }
    button.textContent = told;
    setTimeout(() => { button.textContent = words; }, SAID_MILLISECONDS);
  });
  document.addEventListener("bench:refresh", show);
  show();
})();
