// Figures of a campaign: each is drawn once it comes into sight, with its sentence and its table.

import { brush, isBrushed, onAxis } from "./brush.js";
import { draw } from "./charts.js";
import { getJson } from "./requests.js";

const MARGIN = "300px";

const seen = new WeakSet();
const watcher = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => show(target)),
  { rootMargin: MARGIN },
);

// Watches every `[data-figure]` under `root` (the macro `figure` writes them) that can be had. A
// click on what is drawn of a trial calls `onTrial(number)`.
export async function mount(onTrial, root = document) {
  const figures = [...root.querySelectorAll("[data-figure]")];
  for (const figure of figures) {
    const plot = figure.querySelector("[data-spec]");
    plot.addEventListener("drawn", ({ detail }) => answer(figure, plot, detail, onTrial));
  }
  const had = await offered(figures);
  for (const figure of figures) {
    figure.hidden = !had.has(figure.dataset.figure);
    if (!figure.hidden) watcher.observe(figure);
  }
}

// The kinds that the campaign of these figures has by now; none where nobody answers: once somebody
// does, `update` asks again.
async function offered(figures) {
  if (!figures.length) return new Set();
  const address = figures[0].querySelector("[data-spec]").dataset.spec.replace(/\/[^/]*$/, "");
  const offers = await getJson(address).catch(() => ({ figures: [] }));
  return new Set(offers.figures.filter(({ missing }) => !missing).map(({ kind }) => kind));
}

// Draws those anew that have been in sight, and shows hidden ones that can be had by now.
export async function update(root = document) {
  const figures = [...root.querySelectorAll("[data-figure]")];
  const drawn = figures.filter((figure) => !figure.hidden && seen.has(figure)).map(redraw);
  const hidden = figures.filter((figure) => figure.hidden);
  const had = await offered(hidden);
  for (const figure of hidden.filter(({ dataset }) => had.has(dataset.figure))) {
    figure.hidden = false;
    watcher.observe(figure);
  }
  await Promise.all(drawn);
}

// Narrows a figure to other values, such as {micro_batch_size: 4}, and draws it.
export function narrow(figure, query) {
  figure.dataset.query = new URLSearchParams(query).toString();
  return redraw(figure);
}

function show(figure) {
  watcher.unobserve(figure);
  return redraw(figure);
}

// Lets a chart that was drawn answer to the pointer.
function answer(figure, plot, { view, spec }, onTrial) {
  view.addEventListener("click", (event, item) => {
    if (item?.datum?.number && !onAxis(plot, event)) onTrial(item.datum.number);
  });
  if (!isBrushed(spec)) return;
  const status = figure.querySelector("[data-brushed]");
  status.hidden = false;
  brush(plot, spec, { status, onTrial });
}

async function redraw(figure) {
  seen.add(figure);
  const plot = figure.querySelector("[data-spec]");
  const query = Object.fromEntries(new URLSearchParams(figure.dataset.query));
  const result = await draw(plot, query);
  if (!result) return;
  const { caption, table, choices } = result.spec.usermeta;
  const sentence = figure.querySelector("[data-caption]");
  if (sentence.textContent !== caption) sentence.textContent = caption;
  fill(figure.querySelector("[data-table]"), table);
  offer(figure, choices);
  for (const link of figure.querySelectorAll("[data-file]")) {
    link.search = new URLSearchParams(figure.dataset.query).toString();
  }
  figure.dataset.drawn = "true";
}

// A selector for each query parameter that the figure can be narrowed by.
function offer(figure, choices) {
  const target = figure.querySelector("[data-choices]");
  const offered = JSON.stringify(choices.map(({ name, values }) => [name, values]));
  if (target.dataset.choices !== offered) {
    target.dataset.choices = offered;
    target.replaceChildren(...choices.map((choice) => selector(figure, choice)));
  }
  choices.forEach(({ value }, i) => (target.querySelectorAll("select")[i].value = value));
}

function selector(figure, { name, label, values, required }) {
  const element = document.createElement("label");
  const select = document.createElement("select");
  select.name = name;
  if (!required) select.add(new Option("best of all", ""));
  for (const each of values) select.add(new Option(each.replaceAll("_", " "), each));
  select.addEventListener("change", () => {
    const query = { ...Object.fromEntries(new URLSearchParams(figure.dataset.query)), [name]: select.value };
    if (!select.value) delete query[name];
    narrow(figure, query);
  });
  element.append(label, " ", select);
  return element;
}

function fill(table, { columns, rows }) {
  const head = document.createElement("thead");
  const top = head.insertRow();
  for (const name of columns) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    top.append(cell);
  }
  const body = document.createElement("tbody");
  for (const row of rows) {
    const line = body.insertRow();
    for (const text of row) line.insertCell().textContent = text;
  }
  table.replaceChildren(head, body);
}
