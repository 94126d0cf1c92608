// Draws every [data-figure] from its JSON address: at the start, after each refresh, and when the theme changes.
(() => {
  "use strict";
  const CONFIG = { responsive: true, displayModeBar: false, displaylogo: false };
  const states = new WeakMap();

  function theme() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }

  async function draw(figure) {
    const state = states.get(figure) ?? { busy: false, again: false, tag: null };
    states.set(figure, state);
    if (state.busy) { state.again = true; return; }
    state.busy = true;
    try {
      await update(figure, state);
    } catch (error) {
      figure.dataset.failed = String(error);
    } finally {
      state.busy = false;
      if (state.again) { state.again = false; draw(figure); }
    }
  }

  async function update(figure, state) {
    const url = new URL(figure.dataset.figure, location.href);
    url.searchParams.set("theme", theme());
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(`${answer.status} ${url.pathname}`);
    const etag = answer.headers.get("ETag");
    const tag = etag && url.search + etag; // without a tag it may always be another one
    if (tag && tag === state.tag) return;
    const { data, layout } = await answer.json();
    await Plotly.react(figure, data, layout, CONFIG);
    state.tag = tag;
    figure.dataset.drawn = "true";
    delete figure.dataset.failed;
  }

  const drawAll = () => document.querySelectorAll("[data-figure]").forEach(draw);
  document.addEventListener("bench:refresh", drawAll);
  document.addEventListener("bench:theme", drawAll);
  drawAll();
})();
