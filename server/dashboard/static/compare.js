// Campaigns side by side: draws their progress over node-hours or trials.

import { draw } from "./charts.js";

const plot = document.getElementById("progress");
const toggle = document.getElementById("progress-by");

const by = () => toggle.querySelector("input:checked").value;
const redraw = () => draw(plot, { ids: plot.dataset.ids, by: by() });

if (plot) {
  toggle.addEventListener("change", redraw);
  await redraw();
}
document.body.dataset.ready = "true";
