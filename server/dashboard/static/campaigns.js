// The list of campaigns, brought up to date as they change, and once a minute for their ages.

import { batched, follow } from "./live.js";
import { getNodes } from "./requests.js";

const MINUTE_MS = 60000;
const list = document.getElementById("campaigns");

const refresh = batched(async () => {
  const focused = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  list.replaceChildren(await getNodes(`/fragments/campaigns${location.search}`));
  if (focused) list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}, () => 1000);

follow("/api/v1/events", Number(document.body.dataset.lastEvent), {
  onEvent: refresh,
  onResume: refresh,
  status: document.getElementById("stream"),
});
setInterval(refresh, MINUTE_MS);
document.body.dataset.ready = "true";
