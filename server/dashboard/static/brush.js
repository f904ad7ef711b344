// Brushing of parallel coordinates: only the lines within the ranges of the brushed axes stay clear.

import { viewOf } from "./charts.js";

const NEAR_PX = 18;
const LEAST_PX = 4;
const HINT = "Drag along an axis, or tap one of its values, to see only the trials with it.";

const brushes = new Map();

export const isBrushed = (spec) => Boolean(spec.params?.some(({ name }) => name === "brush"));

// Makes `plot` brushable; after a redraw its ranges stay. `status` shows what lies within them, with
// buttons that call `onTrial(number)` for the best trial and `onTrials(numbers)` for all.
export function brush(plot, spec, { status, onTrial, onTrials }) {
  const axes = spec.datasets.axes;
  const before = brushes.get(plot);
  const same = before && JSON.stringify([before.axes, before.ticks]) === JSON.stringify([axes, spec.datasets.ticks]);
  const { ran, failed, ticks } = spec.datasets;
  const { ranges, gesture } = same ? before : { ranges: {}, gesture: null };
  brushes.set(plot, { axes, ticks, lines: [...failed, ...ran], ranges, status, onTrial, onTrials, gesture });
  if (!before) listen(plot);
  show(plot);
}

// Whether a click is on an axis, which it brushes, and not on a line.
export const onAxis = (plot, event) => brushes.has(plot) && axisAt(plot, event) !== null;

function listen(plot) {
  plot.addEventListener("pointerdown", (event) => {
    const axis = event.button === 0 ? axisAt(plot, event) : null;
    if (!axis) return;
    brushes.get(plot).gesture = { axis, from: placeAt(plot, event), y: event.clientY, moved: false };
    if (event.pointerType === "mouse") plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    if (!viewOf(plot)) return;
    const { gesture, ranges } = brushes.get(plot);
    plot.classList.toggle("on-axis", Boolean(gesture || axisAt(plot, event)));
    if (!gesture || event.pointerType === "touch") return;
    gesture.moved ||= Math.abs(event.clientY - gesture.y) > LEAST_PX;
    if (!gesture.moved) return;
    ranges[gesture.axis.axis] = [gesture.from, placeAt(plot, event)].sort((a, b) => a - b);
    show(plot);
  });
  plot.addEventListener("pointerup", () => {
    const state = brushes.get(plot);
    if (!state.gesture) return;
    if (!state.gesture.moved) tap(state);
    state.gesture = null;
    if (viewOf(plot)) show(plot);
  });
  plot.addEventListener("pointercancel", () => (brushes.get(plot).gesture = null));
}

// A value that is tapped is all that is left; tapped again, everything is back. On an axis that
// measures, what is above is left.
function tap({ gesture: { axis, from }, ranges, ticks }) {
  if (axis.axis in ranges) {
    const [low, high] = ranges[axis.axis];
    delete ranges[axis.axis];
    if (low <= from && from <= high) return;
  }
  const places = ticks.filter((tick) => tick.axis === axis.axis).map(({ place }) => place);
  const place = places.sort((a, b) => Math.abs(a - from) - Math.abs(b - from))[0];
  if (axis.reach) ranges[axis.axis] = [place - axis.reach, place + axis.reach];
  else ranges[axis.axis] = from < 0 ? [-1, -0.05] : [from, 2]; // the slowest is at 0
}

function show(plot) {
  const view = viewOf(plot);
  const { ranges, lines, axes, status, onTrial, onTrials } = brushes.get(plot);
  const brushed = Object.entries(ranges);
  const isWithin = (line) => brushed.every(([axis, [low, high]]) => low <= line[axis] && line[axis] <= high);
  const within = lines.filter(isWithin);
  const outside = brushed.length ? lines.filter((line) => !isWithin(line)).map(({ number }) => [number, true]) : [];
  view.signal("brush", { ...ranges }).signal("outside", Object.fromEntries(outside)).runAsync();
  if (!brushed.length) {
    if (status.textContent !== HINT) status.replaceChildren(HINT);
    return;
  }
  const best = within.at(-1);
  const failed = within.filter(({ rate }) => rate === null).length;
  const words = [`${within.length} of ${lines.length} ${within.length === 1 ? "trials is" : "trials are"} within what is brushed`];
  if (failed) words.push(`${failed} of them failed`);
  if (best?.rate != null) {
    const rate = best.rate.toLocaleString("en", { maximumSignificantDigits: 4 });
    words.push(`the best is trial ${best.number} with ${rate} ${axes.at(-1).title}`);
  }
  const shown = best ? [" ", button(`Open trial ${best.number}`, () => onTrial(best.number))] : [];
  const numbers = within.map(({ number }) => number);
  if (within.length > 1) shown.push(" ", button(`Show these ${within.length} trials`, () => onTrials(numbers)));
  const clear = button("Clear", () => {
    for (const [axis] of brushed) delete ranges[axis];
    show(plot);
  });
  status.replaceChildren(`${words.join("; ")}.`, ...shown, " ", clear);
}

function button(label, action) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = label;
  element.addEventListener("click", action);
  return element;
}

// Where in the chart an event is, in px from the upper left corner of what its axes span.
function point(plot, event) {
  const corner = plot.querySelector("canvas").getBoundingClientRect();
  const view = viewOf(plot);
  const [left, top] = view.origin();
  const { left: aside, top: above } = view.padding();
  return { x: event.clientX - corner.left - left - aside, y: event.clientY - corner.top - top - above };
}

// The axis under an event; null where there is none, or no chart at the time.
function axisAt(plot, event) {
  const scale = viewOf(plot)?.scale("x");
  if (!scale) return null;
  const { x } = point(plot, event);
  const { axes } = brushes.get(plot);
  const near = Math.min(NEAR_PX, scale.step() / 3);
  return axes.find(({ axis }) => Math.abs(scale(axis) - x) <= near) ?? null;
}

const placeAt = (plot, event) => viewOf(plot).scale("y").invert(point(plot, event).y);
