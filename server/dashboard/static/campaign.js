// One campaign's page: follows its stream and brings each part up to date.

import * as actions from "./actions.js";
import { drawAll, tidy } from "./charts.js";
import * as figures from "./figures.js";
import * as launch from "./launch.js";
import { batched, follow } from "./live.js";
import { getNodes } from "./requests.js";
import * as trajectory from "./trajectory.js";
import * as trials from "./trials.js";

const MANY_TRIALS = 300;
const { campaign, lastEvent } = document.body.dataset;
const page = `/campaigns/${campaign}`;
const api = `/api/v1/campaigns/${campaign}`;
let known = Number(document.getElementById("progress").value);
let gone = false;

// A quarter of a second while there is little to draw; a second, then more, when there is much.
const pause = () => (known > 10 * MANY_TRIALS ? 3000 : known > MANY_TRIALS ? 1000 : 250);

// An explanation costs the service a fit: while trials end one after the other it is not asked for
// after each.
const EXPLAINED_EVERY_MS = 5000;

// Puts nodes in the place of a part's own. What was open stays open, what had the focus has it again.
function put(target, nodes) {
  const focused = target.contains(document.activeElement) ? document.activeElement.dataset.action : null;
  const open = [...target.querySelectorAll("details")].map((details) => details.open);
  target.replaceChildren(...nodes);
  target.querySelectorAll("details").forEach((details, i) => (details.open = open[i] ?? false));
  target.removeAttribute("aria-busy");
  if (focused) target.querySelector(`[data-action="${focused}"]`)?.focus();
}

async function replaceFragment(id) {
  const { childNodes } = await getNodes(`${page}/fragments/${id}`);
  put(document.getElementById(id), childNodes);
}

// The answer and the rest of the recommendation, which the service works out together.
async function replaceOutcome() {
  const { children } = await getNodes(`${page}/fragments/outcome`);
  for (const part of [...children]) put(document.getElementById(part.id), part.childNodes);
  await drawAll(document.getElementById("recommendation"));
  tidy();
}

// Nothing is asked any more about a campaign that is being deleted.
const whileThere = (action, pausing = pause) => batched(() => (gone ? null : action()), pausing);

const showSummary = whileThere(() => replaceFragment("summary"));
const showTrials = whileThere(() => Promise.all([trajectory.update(trials.open), trials.update()]));
const showRecommendation = whileThere(replaceOutcome);
const showFigures = whileThere(() => figures.update());
const explained = document.getElementById("explanation"); // of a search alone
const showExplanation = whileThere(() => replaceFragment("explanation"), () => EXPLAINED_EVERY_MS);

function everything() {
  showSummary();
  showFigures();
  showTrials();
  showOutcome();
}

function showOutcome() {
  showRecommendation();
  if (explained) showExplanation();
}

function onEvent(event) {
  if (gone) return;
  showSummary();
  if (event.kind === "trial") {
    known = Math.max(known, event.trial?.number ?? 0);
    trajectory.begin();
    showTrials();
    if (event.trial) trials.refresh(event.trial.number);
  }
  if (event.kind !== "trial" || event.trial?.state !== "pending") {
    showOutcome();
    showFigures();
  }
}

const tableReady = trials.start(page);
actions.start(api, { onChange: everything, onLeave: (leaving) => (gone = leaving) });
await Promise.all([tableReady, trajectory.start(trials.open), drawAll(document.getElementById("recommendation"))]);
figures.mount(trials.open);
launch.start(document.getElementById("answer"));
if (explained && "later" in explained.dataset) showExplanation();
follow(`${api}/events`, Number(lastEvent), {
  onEvent,
  onResume: everything,
  status: document.getElementById("stream"),
});
addEventListener("pagehide", () => (gone = true));
document.body.dataset.ready = "true";
