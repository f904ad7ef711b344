// Draws the specifications that the server makes, in the scheme of the system.

const dark = matchMedia("(prefers-color-scheme: dark)");
const views = new Map();

const OPTIONS = {
  mode: "vega-lite",
  ast: true, // expressions are interpreted: the page's policy forbids eval
  actions: false,
  defaultStyle: false,
  renderer: "canvas",
  tooltip: showTip,
  logLevel: 1, // errors: a chart that is still empty is none
};

// Draws `element.dataset.spec` (with `query` added) into the element and dispatches `drawn` with its
// {view, spec}; resolves to the same, or to null if that failed. An element that holds its chart in
// both schemes is drawn from them.
export async function draw(element, query = {}) {
  const scheme = dark.matches ? "dark" : "light";
  let spec = element.dataset[scheme] && JSON.parse(element.dataset[scheme]);
  if (!spec) {
    const address = `${element.dataset.spec}?${new URLSearchParams({ ...query, scheme })}`;
    const response = await fetch(address).catch(() => null);
    if (!response) return null; // what is drawn stays: the page asks again once the service is back
    if (!response.ok) return complain(element, response);
    spec = await response.json();
  }
  views.get(element)?.result.finalize();
  const result = await window.vegaEmbed(element, spec, OPTIONS);
  element.classList.remove("vega-embed", "failed");
  views.set(element, { result, query });
  zoomable(element, result.view);
  element.dispatchEvent(new CustomEvent("drawn", { detail: result }));
  return result;
}

// A way back from where a chart was zoomed to, where the page has a button for it.
function zoomable(element, view) {
  const reset = element.closest(".card")?.querySelector("[data-reset]");
  if (!reset) return;
  reset.hidden = true;
  reset.onclick = () => view.data("zoom_store", []).runAsync();
  view.addSignalListener("zoom", (name, zoomed) => (reset.hidden = !Object.keys(zoomed).length));
}

export const viewOf = (element) => views.get(element)?.result.view;

async function complain(element, response) {
  views.get(element)?.result.finalize();
  views.delete(element);
  element.classList.add("failed");
  element.textContent = "This chart could not be drawn; its figures are in the table.";
  // If the campaign does not have this figure, or no longer, the answer explains why.
  if (response.status === 404) element.textContent = (await response.json()).detail;
  return null;
}

// Charts whose element has left the page are let go.
export function tidy() {
  for (const [element, { result }] of views) {
    if (element.isConnected) continue;
    result.finalize();
    views.delete(element);
  }
}

dark.addEventListener("change", () => {
  tidy();
  for (const [element, { query }] of [...views]) draw(element, query);
});

// --- the tooltip: vega's own sets inline styles from a style sheet that the policy forbids --------

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

function showTip(handler, event, item, value) {
  if (!value || typeof value !== "object") {
    tip.hidden = true;
    return;
  }
  const list = document.createElement("dl");
  for (const [name, text] of Object.entries(value)) {
    if (text === "" || text === "null" || text == null) continue;
    const term = document.createElement("dt");
    const description = document.createElement("dd");
    term.textContent = name;
    description.textContent = text;
    list.append(term, description);
  }
  tip.replaceChildren(list);
  tip.hidden = false;
  const room = { x: innerWidth - tip.offsetWidth - 8, y: innerHeight - tip.offsetHeight - 8 };
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, room.x))}px`;
  tip.style.top = `${Math.max(8, Math.min(event.clientY + 14, room.y))}px`;
}
