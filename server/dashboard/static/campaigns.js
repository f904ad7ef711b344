// The list of campaigns, brought up to date as they change, and once a minute for their ages. What is
// searched for and sorted by stands in the address.

import { batched, follow } from "./live.js";
import { getNodes } from "./requests.js";

const MINUTE_MS = 60000;
const TYPING_MS = 200;
const list = document.getElementById("campaigns");
const form = document.getElementById("search");
let typing;
let newest = 0;

const refresh = batched(show, () => 1000);

async function show() {
  const mine = ++newest;
  const fragment = await getNodes(`/fragments/campaigns${location.search}`);
  if (mine !== newest) return; // a later request brings newer rows
  const focused = list.contains(document.activeElement) ? document.activeElement : null;
  const same = focused?.dataset.sort
    ? `a[data-sort="${focused.dataset.sort}"]`
    : `a[href="${CSS.escape(focused?.getAttribute("href") ?? "")}"]`;
  const scroll = list.querySelector(".scroll")?.scrollLeft ?? 0;
  list.replaceChildren(fragment);
  const table = list.querySelector(".scroll");
  if (table) table.scrollLeft = scroll;
  if (focused) list.querySelector(same)?.focus({ preventScroll: true });
}

function search() {
  const address = new URL(location);
  address.searchParams.delete("cursor");
  const words = form.elements.search.value.trim();
  if (words) address.searchParams.set("search", words);
  else address.searchParams.delete("search");
  history.replaceState(null, "", address);
  show().catch((error) => console.warn(error.message));
}

form.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, TYPING_MS);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  search();
});
list.addEventListener("click", (event) => {
  const head = event.target.closest("a[data-sort]");
  if (!head || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  history.pushState(null, "", head.href);
  show().catch((error) => console.warn(error.message));
});
addEventListener("popstate", () => {
  form.elements.search.value = new URLSearchParams(location.search).get("search") ?? "";
  show().catch((error) => console.warn(error.message));
});
follow("/api/v1/events", Number(document.body.dataset.lastEvent), {
  onEvent: refresh,
  onResume: refresh,
  status: document.getElementById("stream"),
});
setInterval(refresh, MINUTE_MS);
document.body.dataset.ready = "true";
