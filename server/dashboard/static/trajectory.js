// The search trajectory: maps the server's series to the chart's rows, its sentence and its table.

import { note, noted, onReturn } from "./address.js";
import { draw, viewOf } from "./charts.js";
import { fill } from "./figures.js";
import { getJson } from "./requests.js";

const plot = document.getElementById("trajectory");
const summary = document.getElementById("trajectory-summary");
const thinned = document.getElementById("trajectory-thinned");
const improvements = document.getElementById("improvements");
const toggle = document.getElementById("trajectory-by");
const card = document.getElementById("trajectory-card");
let drawnKind = null;
let onTrial = () => {};
let drawing = null;

const axis = () => toggle.querySelector("input:checked").value;
const url = plot?.dataset.spec.replace(".vega.json", ".json");
// Before the first result there is nothing to draw.
const isShown = () => plot && !plot.closest("[hidden]");

// Takes the axis from the address, and keeps it there. A click on a mark calls `onMark(number)`.
export function start(onMark) {
  if (!plot) return;
  onTrial = onMark;
  const usual = axis();
  const choose = () => {
    const inputs = [...toggle.querySelectorAll("input")];
    (inputs.find(({ value }) => value === noted("by")) ?? inputs.find(({ value }) => value === usual)).checked = true;
  };
  toggle.addEventListener("change", () => {
    note({ by: axis() === usual ? "" : axis() });
    redraw();
  });
  onReturn(() => {
    const before = axis();
    choose();
    if (axis() !== before) redraw();
  });
  choose();
}

// Draws it where its tab has been opened.
export function show() {
  if (plot) drawing = viewOf(plot) ? update() : redraw();
}

// Resolves once what was begun by `show` is drawn.
export const drawn = () => drawing;

async function redraw() {
  if (!isShown()) return;
  const result = await draw(plot, { by: axis() });
  if (!result) return;
  const { series, caption, table } = result.spec.usermeta;
  drawnKind = kind(series);
  describe(series, caption, table);
  result.view.addEventListener("click", (event, item) => {
    if (item?.datum?.number) onTrial(item.datum.number);
  });
}

// What decides on a chart's axes: their unit, and whether there is anything to span them.
const kind = (series) => [series.x_title, series.finished > 0, series.best.length > 0].join();

// Puts new rows into the chart, or redraws it if its axes have changed.
export async function update() {
  if (!plot) return;
  const { series, caption, table } = await getJson(`${url}?by=${axis()}`);
  card.hidden = !series.best.length;
  if (!isShown()) return;
  const view = viewOf(plot);
  if (!view || kind(series) !== drawnKind) return redraw();
  describe(series, caption, table);
  replace(view, "measured", series.points.filter((point) => point.objective !== null));
  replace(view, "failed", series.points.filter((point) => point.objective === null));
  replace(view, "best", series.best);
  replace(view, "baseline", series.baseline ? [series.baseline] : []);
  return view.runAsync();
}

function replace(view, name, rows) {
  view.change(name, view.changeset().remove(() => true).insert(rows));
}

function describe(series, caption, table) {
  if (summary.textContent !== caption) summary.textContent = caption;
  const all = series.drawn === series.finished;
  const share = `${series.drawn} of ${series.finished} marks are drawn`;
  thinned.textContent = all ? "" : `${share}, every improvement among them.`;
  fill(improvements, table);
}
