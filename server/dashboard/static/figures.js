// Figures of a campaign: each is drawn once its tab is open, with its sentence and its table.

import { brush, isBrushed, onAxis } from "./brush.js";
import { draw } from "./charts.js";
import { getJson } from "./requests.js";

const IDLE_LIMIT_MS = 500;
const seen = new WeakSet();
let mounted = null;
const all = (root) => [...root.querySelectorAll("[data-figure]")];
const isShown = (figure) => !figure.closest("[hidden]");

// Whenever the page has nothing else to do; Safari has no such call.
const idle = () =>
  new Promise((done) => (window.requestIdleCallback ? requestIdleCallback(done, { timeout: IDLE_LIMIT_MS }) : setTimeout(done)));

// Prepares every `[data-figure]` (the macro `figure` writes them), and shows those that the campaign
// has. A click on a trial's mark calls `onTrial(number)`; the button for brushed trials calls
// `onTrials(numbers)`.
export function mount(onTrial, onTrials) {
  mounted = prepare({ onTrial, onTrials });
}

async function prepare(actions) {
  const figures = all(document);
  for (const figure of figures) {
    const plot = figure.querySelector("[data-spec]");
    plot.addEventListener("drawn", ({ detail }) => answer(figure, plot, detail, actions));
  }
  const had = await offered(figures);
  for (const figure of figures) figure.hidden = !had.has(figure.dataset.figure);
}

// Draws the figures of a tab that was opened, from the top, one after another.
export async function show(panel) {
  await mounted;
  for (const figure of all(panel)) {
    await idle();
    if (isShown(figure) && !seen.has(figure)) await redraw(figure);
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

// Redraws the figures of the open tab, and others once their tab opens; shows hidden ones that are
// available by now.
export async function update() {
  const figures = all(document);
  const hidden = figures.filter((figure) => figure.hidden);
  const had = await offered(hidden);
  for (const figure of hidden) figure.hidden = !had.has(figure.dataset.figure);
  for (const figure of figures) seen.delete(figure);
  await Promise.all(figures.filter(isShown).map(redraw));
}

// Narrows a figure to other values, such as {micro_batch_size: 4}, and draws it.
export function narrow(figure, query) {
  figure.dataset.query = new URLSearchParams(query).toString();
  return redraw(figure);
}

// Lets a chart that was drawn answer to the pointer.
function answer(figure, plot, { view, spec }, actions) {
  view.addEventListener("click", (event, item) => {
    if (item?.datum?.number && !onAxis(plot, event)) actions.onTrial(item.datum.number);
  });
  if (!isBrushed(spec)) return;
  const status = figure.querySelector("[data-brushed]");
  status.hidden = false;
  brush(plot, spec, { status, ...actions });
}

async function redraw(figure) {
  seen.add(figure);
  const plot = figure.querySelector("[data-spec]");
  const query = Object.fromEntries(new URLSearchParams(figure.dataset.query));
  const result = await draw(plot, query);
  if (!result) return;
  const { title, caption, table, choices } = result.spec.usermeta;
  figure.querySelector("h2").textContent = title;
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

const NUMBER = /^([+-]?\d|–$)/; // how a cell of numbers begins, in rendering.py, too

// Writes the table of a figure; columns of numbers are aligned right.
export function fill(table, { columns, rows }) {
  const numeric = columns.map((_, i) => rows.every((row) => NUMBER.test(row[i])));
  const write = (cell, text, i) => {
    cell.textContent = text;
    if (numeric[i]) cell.className = "number";
    return cell;
  };
  const head = document.createElement("thead");
  const names = columns.map((name, i) => write(document.createElement("th"), name, i));
  for (const name of names) name.scope = "col";
  head.insertRow().append(...names);
  const body = document.createElement("tbody");
  for (const row of rows) {
    const line = body.insertRow();
    row.forEach((text, i) => write(line.insertCell(), text, i));
  }
  table.replaceChildren(head, body);
}
