// One campaign's page: follows its stream and brings each part up to date.

import * as actions from "./actions.js";
import * as figures from "./figures.js";
import * as launch from "./launch.js";
import { batched, follow } from "./live.js";
import { getNodes, getText } from "./requests.js";
import * as tabs from "./tabs.js";
import * as trajectory from "./trajectory.js";
import * as trials from "./trials.js";

const MANY_TRIALS = 300;
const { campaign, lastEvent, trials: begun } = document.body.dataset;
const page = `/campaigns/${campaign}`;
const api = `/api/v1/campaigns/${campaign}`;
let known = Number(begun);
let gone = false;

// A quarter of a second while there is little to draw; a second, then more, when there is much.
const pause = () => (known > 10 * MANY_TRIALS ? 3000 : known > MANY_TRIALS ? 1000 : 250);

// An explanation costs the service a fit: while trials end one after the other it is not requested
// after each.
const EXPLAINED_EVERY_MS = 5000;
const LOG_EVERY_MS = 5000;

// Puts nodes in the place of a part's own. What was open stays open, what had the focus has it again.
function put(target, nodes) {
  const focused = target.contains(document.activeElement) ? document.activeElement.dataset.action : null;
  const open = [...target.querySelectorAll("details")].map((details) => details.open);
  target.replaceChildren(...nodes);
  target.querySelectorAll("details").forEach((details, i) => (details.open = open[i] ?? false));
  target.removeAttribute("aria-busy");
  if (focused) target.querySelector(`[data-action="${focused}"]`)?.focus();
}

// Brings the parts up to date that a fragment has, each an element with the id of its place.
async function replace(name) {
  const { children } = await getNodes(`${page}/fragments/${name}`);
  const logged = document.querySelector("[data-live]");
  for (const part of [...children]) put(document.getElementById(part.id), part.childNodes);
  const log = document.querySelector("[data-live]");
  if (log && log.dataset.live === logged?.dataset.live) log.textContent = logged.textContent;
}

// The log of the trial that runs, which grows without an event.
async function followLog() {
  const log = document.querySelector(".panel:not([hidden]) [data-live]");
  if (!log || gone || document.hidden) return;
  const text = await getText(log.dataset.live).catch(() => "");
  if (!text || text === log.textContent) return;
  log.textContent = text;
  log.scrollTop = log.scrollHeight;
}

function openTrial(number) {
  tabs.open("trials");
  return trials.open(number);
}

function openTrials(numbers) {
  tabs.open("trials");
  trials.only(numbers);
}

function onOpen(panel) {
  if (panel.id === "answer") trajectory.show();
  figures.show(panel);
}

// Sends no more requests about a campaign that is being deleted.
const whileThere = (action, pausing = pause) => batched(() => (gone ? null : action()), pausing);

const showProgress = whileThere(async () => {
  await replace("progress");
  await followLog();
});
const showTrials = whileThere(() => Promise.all([trajectory.update(), trials.update()]));
const showAnswer = whileThere(() => replace("outcome"));
const showFigures = whileThere(() => figures.update());
const explained = document.getElementById("part-why"); // only searches have it
const showExplanation = whileThere(() => replace("explanation"), () => EXPLAINED_EVERY_MS);

function everything() {
  showProgress();
  showFigures();
  showTrials();
  showOutcome();
}

function showOutcome() {
  showAnswer();
  if (explained) showExplanation();
}

function onEvent(event) {
  if (gone) return;
  showProgress();
  if (event.kind === "trial") {
    known = Math.max(known, event.trial?.number ?? 0);
    showTrials();
    if (event.trial) trials.refresh(event.trial.number);
  }
  if (event.kind !== "trial" || event.trial?.state !== "pending") {
    showOutcome();
    showFigures();
  }
}

actions.start(api, { onChange: everything, onLeave: (leaving) => (gone = leaving) });
trajectory.start(openTrial);
figures.mount(openTrial, openTrials);
tabs.start(onOpen);
launch.start(document.getElementById("launch"));
await Promise.all([trials.start(page), trajectory.drawn(), followLog()]);
if (explained && "later" in explained.dataset) showExplanation();
follow(`${api}/events`, Number(lastEvent), {
  onEvent,
  onResume: everything,
  status: document.getElementById("stream"),
});
setInterval(followLog, LOG_EVERY_MS);
addEventListener("pagehide", () => (gone = true));
document.body.dataset.ready = "true";
