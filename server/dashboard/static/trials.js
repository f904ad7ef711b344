// The table of trials: sorted and filtered by the server, its open details kept over each update.

import { note, noted, onReturn } from "./address.js";
import { getNodes, getText } from "./requests.js";

const STEP = 100;
const table = document.getElementById("trial-table");
const body = document.getElementById("trial-rows");
const constant = document.getElementById("trials-constant");
const filters = document.getElementById("trials-filters");
const more = document.getElementById("more-trials");
const FILTERS = ["state", "purpose", "numbers"];
const details = new Map();
const unfolded = new Set();
let url;
const NEWEST_FIRST = "-number";
let sort = NEWEST_FIRST;
let shown = STEP;
let apart = 0; // the trial opened last: it has a row wherever it stands
let newest = 0;

// Takes filters, order and the opened trial from the address, which keeps them.
export async function start(campaignUrl) {
  url = campaignUrl;
  table.tHead.addEventListener("click", sortBy);
  filters.addEventListener("change", () => {
    note(Object.fromEntries(FILTERS.map((name) => [name, filters.elements[name].value])));
    update();
  });
  filters.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => {
    shown += STEP;
    update();
  });
  body.addEventListener("click", (event) => {
    const fold = event.target.closest("tr.fold")?.querySelector("[data-fold]");
    if (fold) unfold(fold.dataset.fold);
    const row = event.target.closest("tr.trial");
    if (row && !String(getSelection())) toggle(Number(row.dataset.number));
  });
  onReturn(restore);
  await restore();
}

// Shows what the address says; what it says of nothing that there is, is left out.
async function restore() {
  const before = question();
  offer(noted("numbers"));
  for (const name of FILTERS) {
    const { options } = filters.elements[name];
    const wanted = [...options].find(({ value }) => value === noted(name)) ?? options[0];
    wanted.selected = true;
  }
  sort = sortButton(noted("sort")) ? noted("sort") : NEWEST_FIRST;
  mark();
  if (question() !== before) await update();
  const number = /^[1-9]\d{0,8}$/.test(noted("trial")) ? Number(noted("trial")) : 0;
  for (const other of details.keys()) if (other !== number) close(other);
  if (number && !details.has(number)) await open(number);
}

// Shows the trials with these numbers only, whatever else was filtered.
export function only(numbers) {
  filters.reset();
  offer(numbers.join());
  filters.dispatchEvent(new Event("change"));
}

// The choice of the trials that were brushed in a chart, chosen; without any there is no such filter.
function offer(numbers) {
  const select = filters.elements.numbers;
  select.length = 1;
  if (/^\d{1,9}(,\d{1,9})*$/.test(numbers)) select.add(new Option(`${numbers.split(",").length} brushed`, numbers, false, true));
  select.closest("label").hidden = select.length < 2;
}

function question() {
  const query = new URLSearchParams({ ...Object.fromEntries(new FormData(filters)), sort, shown, also: apart });
  for (const key of unfolded) query.append("unfolded", key);
  return String(query);
}

// Shows or hides the trials that failed alike.
function unfold(key) {
  if (!unfolded.delete(key)) unfolded.add(key);
  return update();
}

// Requests the rows again and replaces the ones that differ.
export async function update() {
  const mine = ++newest;
  const fragment = await getNodes(`${url}/fragments/trials?${question()}`);
  if (mine !== newest) return; // a later request brings newer rows
  more.hidden = !fragment.querySelector("[data-more]");
  head(fragment.querySelector("[data-head]"));
  const old = new Map([...body.querySelectorAll("tr.trial")].map((row) => [row.dataset.number, row]));
  const focused = opensWhat(document.activeElement);
  const rows = [];
  for (const row of fragment.querySelectorAll("tr:not([data-more])")) {
    const detail = details.get(Number(row.dataset.number));
    if (detail) row.querySelector(".open").setAttribute("aria-expanded", "true");
    const before = old.get(row.dataset.number);
    rows.push(before?.isEqualNode(row) ? before : row);
    if (detail) rows.push(detail);
  }
  body.replaceChildren(...rows);
  if (focused) [...body.querySelectorAll(".open")].find((each) => opensWhat(each) === focused)?.focus({ preventScroll: true });
}

// The trial or the fold of which a button shows more.
const opensWhat = (button) => button?.dataset?.fold ?? button?.closest("tr.trial")?.dataset.number;

// Another head where trials differ in more dimensions than before.
function head(template) {
  const text = template.dataset.constant;
  constant.hidden = !text;
  constant.querySelector("span").textContent = text;
  const names = (root) => [...root.querySelectorAll("th")].map((cell) => cell.textContent.trim()).join();
  if (names(template.content) === names(table.tHead)) return;
  table.tHead.replaceChildren(...template.content.children);
  for (const detail of details.values()) detail.cells[0].colSpan = table.tHead.rows[0].cells.length;
  mark();
}

async function sortBy(event) {
  const button = event.target.closest("[data-sort]");
  if (!button) return;
  const key = button.dataset.sort;
  const rising = sort === `-${key}` || (sort !== key && button.dataset.first === "rising");
  sort = rising ? key : `-${key}`;
  mark();
  note({ sort: sort === NEWEST_FIRST ? "" : sort });
  shown = STEP;
  await update();
}

const sortButton = (by) => table.tHead.querySelector(`[data-sort="${CSS.escape(by.replace(/^-/, ""))}"]`);

// Marks the column that is sorted by.
function mark() {
  table.tHead.querySelector("[aria-sort]")?.removeAttribute("aria-sort");
  const order = sort.startsWith("-") ? "descending" : "ascending";
  sortButton(sort)?.closest("th").setAttribute("aria-sort", order);
}

// Shows or hides a trial's details under its row.
async function toggle(number) {
  if (details.has(number)) {
    close(number);
    note({ trial: [...details.keys()].at(-1) });
    return;
  }
  const detail = document.createElement("tr");
  detail.className = "detail";
  const cell = detail.insertCell();
  cell.colSpan = table.tHead.rows[0].cells.length;
  details.set(number, detail);
  const button = opener(number);
  button.closest("tr").after(detail);
  button.setAttribute("aria-expanded", "true");
  note({ trial: number });
  await fill(cell, number);
}

function close(number) {
  details.get(number).remove();
  details.delete(number);
  if (apart === number) apart = 0;
  opener(number)?.setAttribute("aria-expanded", "false");
}

const opener = (number) => body.querySelector(`tr[data-number="${number}"] .open`);

async function fill(cell, number) {
  try {
    cell.replaceChildren(await getNodes(`${url}/fragments/trials/${number}`));
    const log = cell.querySelector("[data-log]");
    if (log) await showLog(log);
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

// Shows a finished trial's details again, if they are open.
export function refresh(number) {
  const detail = details.get(number);
  if (detail) fill(detail.cells[0], number);
}

// Opens a trial from elsewhere on the page. One that filters hide, or that stands far below, gets a
// row before all others.
export async function open(number) {
  apart = number;
  if (!opener(number)) await update();
  if (!opener(number)) return; // there is none
  if (!details.has(number)) await toggle(number);
  opener(number).closest("tr").scrollIntoView({ block: "start" });
  opener(number).focus({ preventScroll: true });
}
