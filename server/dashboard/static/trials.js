// The table of trials: sorted and filtered by the server, its open details kept over each update.

import { drawAll, tidy } from "./charts.js";
import { getNodes, getText } from "./requests.js";

const STEP = 100;
const table = document.getElementById("trials");
const body = document.getElementById("trial-rows");
const filters = document.getElementById("trials-filters");
const more = document.getElementById("more-trials");
const details = new Map();
let url;
const NEWEST_FIRST = "-number";
let sort = NEWEST_FIRST;
let shown = STEP;
let asked = 0;

// Takes filters, order and the opened trial from the address, as `note` keeps them there.
export async function start(campaignUrl) {
  url = campaignUrl;
  table.tHead.addEventListener("click", sortBy);
  filters.addEventListener("change", update);
  filters.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => {
    shown += STEP;
    update();
  });
  body.addEventListener("click", (event) => {
    const row = event.target.closest("tr.trial");
    if (row && !String(getSelection())) toggle(Number(row.dataset.number));
  });
  const address = new URLSearchParams(location.search);
  for (const name of ["state", "purpose"]) {
    const select = filters.elements[name];
    if ([...select.options].some((option) => option.value === address.get(name))) select.value = address.get(name);
  }
  const button = table.tHead.querySelector(`[data-sort="${CSS.escape(address.get("sort")?.replace(/^-/, "") ?? "")}"]`);
  if (button) order(button, address.get("sort"));
  if (isFiltered() || sort !== NEWEST_FIRST) await update();
  const opened = Number(address.get("trial"));
  if (opened) await open(opened);
}

// Keeps in the address what differs from how the page begins, so that a link shows the same.
function note() {
  const address = new URL(location);
  const shownNow = { ...Object.fromEntries(new FormData(filters)), sort: sort === NEWEST_FIRST ? "" : sort };
  shownNow.trial = details.size ? String([...details.keys()].at(-1)) : "";
  for (const [name, value] of Object.entries(shownNow)) {
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
  }
  history.replaceState(null, "", address);
}

const isFiltered = () => [...new FormData(filters).values()].some(Boolean);

// Asks for the rows anew and puts in place those that differ.
export async function update() {
  note();
  const query = new URLSearchParams({ ...Object.fromEntries(new FormData(filters)), sort, shown });
  const mine = ++asked;
  const fragment = await getNodes(`${url}/fragments/trials?${query}`);
  if (mine !== asked) return; // what was asked since is answered by another
  more.hidden = !fragment.querySelector("[data-more]");
  const old = new Map([...body.querySelectorAll("tr.trial")].map((row) => [row.dataset.number, row]));
  const focused = document.activeElement?.closest("tr.trial")?.dataset.number;
  const rows = [];
  for (const row of fragment.querySelectorAll("tr:not([data-more])")) {
    const detail = details.get(Number(row.dataset.number));
    if (detail) row.querySelector(".open").setAttribute("aria-expanded", "true");
    const before = old.get(row.dataset.number);
    rows.push(before?.isEqualNode(row) ? before : row);
    if (detail) rows.push(detail);
  }
  body.replaceChildren(...rows);
  if (focused) body.querySelector(`tr[data-number="${focused}"] .open`)?.focus({ preventScroll: true });
}

async function sortBy(event) {
  const button = event.target.closest("[data-sort]");
  if (!button) return;
  const key = button.dataset.sort;
  const rising = sort === `-${key}` || (sort !== key && button.dataset.first === "rising");
  order(button, rising ? key : `-${key}`);
  shown = STEP;
  await update();
}

function order(button, by) {
  sort = by;
  table.tHead.querySelector("[aria-sort]")?.removeAttribute("aria-sort");
  button.closest("th").setAttribute("aria-sort", by.startsWith("-") ? "descending" : "ascending");
}

// Shows or hides a trial's details under its row.
async function toggle(number) {
  const button = body.querySelector(`tr[data-number="${number}"] .open`);
  const open = details.get(number);
  if (open) {
    open.remove();
    details.delete(number);
    note();
    tidy();
  } else {
    const detail = document.createElement("tr");
    detail.className = "detail";
    const cell = detail.insertCell();
    cell.colSpan = table.tHead.rows[0].cells.length;
    details.set(number, detail);
    button.closest("tr").after(detail);
    note();
  }
  button.setAttribute("aria-expanded", String(!open));
  if (!open) await fill(details.get(number).cells[0], number);
}

async function fill(cell, number) {
  try {
    cell.replaceChildren(await getNodes(`${url}/fragments/trials/${number}`));
    const log = cell.querySelector("[data-log]");
    await Promise.all([drawAll(cell), log && showLog(log)]);
  } catch (problem) {
    cell.textContent = problem.message;
  }
}

async function showLog(element) {
  try {
    element.textContent = (await getText(element.dataset.log)) || "The log is empty.";
  } catch (problem) {
    element.textContent = problem.message;
  }
  element.scrollTop = element.scrollHeight;
}

// A finished trial's details are shown anew, if they are open.
export function refresh(number) {
  const detail = details.get(number);
  if (detail) fill(detail.cells[0], number);
}

// Opens a trial from elsewhere on the page; loads more rows until it is among them, and takes away
// filters that hide it.
export async function open(number) {
  const find = () => body.querySelector(`tr[data-number="${number}"]`);
  const load = async () => {
    while (!find() && !more.hidden) {
      shown += 5 * STEP;
      await update();
    }
  };
  await load();
  if (!find() && isFiltered()) {
    filters.reset();
    await update();
    await load();
  }
  if (!find()) return;
  if (!details.has(number)) await toggle(number);
  find().scrollIntoView({ block: "start" });
  find().querySelector(".open").focus({ preventScroll: true });
}
