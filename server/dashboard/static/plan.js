// The page of plans: the question as one types it, its answer, and the memory of one strategy.

import { answers } from "./answers.js";
import { draw, tidy } from "./charts.js";
import { showDimensions, showExperts } from "./fields.js";
import { filledFromAddress, fillIn, inAddress, showLength, values } from "./values.js";

const question = document.getElementById("question");
const strategy = document.getElementById("strategy");
const start = document.getElementById("start");
const plan = document.getElementById("plan");
const memory = document.getElementById("memory");
const scaling = document.getElementById("scaling");
let chosen = false; // a strategy by hand; until then the best predicted is shown

const planAnswers = answers({
  url: "/fragments/plan?view=page",
  question: () => values(question),
  region: plan,
  progress: document.getElementById("plan-progress"),
  shown: showBest,
});
const memoryAnswers = answers({
  url: "/fragments/memory",
  question: oneStrategy,
  region: memory,
  progress: document.getElementById("memory-progress"),
  shown: showScaling,
});
const scalingAnswers = answers({
  url: "/fragments/scaling",
  question: oneStrategy,
  region: scaling,
  progress: document.getElementById("scaling-progress"),
  shown: drawScaling,
});

function oneStrategy() {
  return { ...values(question), ...values(strategy) };
}

// What is not legal scales nowhere.
function showScaling() {
  if (memory.querySelector(".verdict")) scalingAnswers.now();
  else scaling.replaceChildren();
}

// The charts' script is large, and the answers above do without it.
async function drawScaling() {
  tidy();
  await import(document.body.dataset.charts);
  await Promise.all([...scaling.querySelectorAll(".plot")].map((plot) => draw(plot)));
}

function showBest() {
  const best = plan.querySelector("[data-strategy]");
  if (best && !chosen) fillIn(strategy, JSON.parse(best.dataset.strategy));
  memoryAnswers.now();
}

// Trials on another machine than this one are not local, and local ones on no other.
function matchEvaluator({ target }) {
  const { evaluator, machine } = question.elements;
  if (target === machine && machine.value === "local") evaluator.value = "local";
  if (target === machine && machine.value !== "local" && evaluator.value === "local") evaluator.value = "";
  showEvaluatorInputs();
  address();
}

function showEvaluatorInputs() {
  for (const field of question.querySelectorAll("[data-evaluator]")) {
    field.hidden = field.dataset.evaluator !== question.elements.evaluator.value;
  }
  showDimensions(question);
}

function address() {
  showExperts(question.elements.model.value);
  const search = inAddress(question);
  history.replaceState(null, "", `/plan?${search}`);
  if (!search.has("evaluator")) search.set("evaluator", "simulated"); // a campaign needs one
  start.href = `/campaigns/new?${search}`;
}

function replan() {
  address();
  planAnswers.soon();
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-strategy], [data-question]");
  if (!button) return;
  if (button.dataset.question) {
    fillIn(question, JSON.parse(button.dataset.question));
    address();
    planAnswers.now();
    return;
  }
  chosen = true;
  fillIn(strategy, JSON.parse(button.dataset.strategy));
  memoryAnswers.now();
  document.getElementById("memory-card").scrollIntoView({ block: "nearest" });
});
question.addEventListener("change", matchEvaluator);
question.elements.model.addEventListener("input", () => showLength(question));
question.addEventListener("input", replan);
question.addEventListener("submit", (event) => event.preventDefault());
strategy.addEventListener("input", () => {
  chosen = true;
  memoryAnswers.soon();
});
strategy.addEventListener("submit", (event) => event.preventDefault());

showLength(question);
filledFromAddress(question);
showEvaluatorInputs();
address();
await planAnswers.now();
document.body.dataset.ready = "true";
