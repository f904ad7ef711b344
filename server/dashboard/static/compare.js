// Campaigns side by side: draws their progress over node-hours or trials, and follows those that run.

import { draw } from "./charts.js";
import { batched, follow } from "./live.js";
import { getNodes } from "./requests.js";

const PARTS = ["verdict", "winners", "improvements"];
const plot = document.getElementById("progress");
const toggle = document.getElementById("progress-by");

const by = () => toggle.querySelector("input:checked").value;
const redraw = () => draw(plot, { ids: plot.dataset.ids, by: by() });

async function refresh() {
  const page = await getNodes(location.href);
  for (const id of PARTS) document.getElementById(id).replaceChildren(...page.getElementById(id).childNodes);
  await redraw();
}

if (plot) {
  toggle.addEventListener("change", redraw);
  await redraw();
}
if ("lastEvent" in document.body.dataset) {
  const ids = plot.dataset.ids.split(",").map(Number);
  const changed = batched(refresh, () => 1000);
  follow("/api/v1/events", Number(document.body.dataset.lastEvent), {
    onEvent: (event) => ids.includes(event.campaign_id) && changed(),
    onResume: changed,
    status: document.getElementById("stream"),
  });
}
document.body.dataset.ready = "true";
