// The form of a new campaign: its values go to the API as JSON, refusals come back to their fields.

import { answers } from "./answers.js";
import { clearErrors, showDimensions, showErrors, showErrorsAt, showExperts } from "./fields.js";
import { Problem, create, send } from "./requests.js";
import { filledFromAddress, fillIn, inAddress, showLength, values } from "./values.js";

const form = document.getElementById("campaign");
const switched = document.getElementById("switched");
const report = document.getElementById("report");
const buttons = [form.querySelector("[type=submit]"), document.getElementById("check")];

function showModelInputs() {
  const shape = form.elements["model-given"].value === "shape";
  document.getElementById("model-name").hidden = shape;
  document.getElementById("model-shape").hidden = !shape;
}

function showEvaluatorInputs() {
  const evaluator = form.elements.evaluator.value;
  for (const field of form.querySelectorAll("[data-evaluator]")) {
    field.hidden = !field.dataset.evaluator.split(" ").includes(evaluator);
  }
}

// A profile is for its own machine. One for any is hardly for this one, where the service runs: then
// none is chosen, and the API asks for it.
function chooseMachineOf(profile) {
  const { machine } = profile.selectedOptions[0]?.dataset ?? {};
  const chosen = form.elements.machine;
  if (machine) chosen.value = machine;
  else if (chosen.value === "local") chosen.value = "";
}

// Trials on another machine than this one are not local, and local ones on no other.
function matchEvaluator(target) {
  const { evaluator, machine } = form.elements;
  if (target === evaluator && evaluator.value === "local") machine.value = "local";
  if (machine.value === "local" && !switched.hidden) evaluator.value = "local";
  if (target === evaluator || machine.value === "local") switched.hidden = true;
  if (evaluator.value === "local" && !["", "local"].includes(machine.value)) {
    evaluator.value = "simulated";
    switched.hidden = false;
  }
  switched.textContent = `changed to simulated: ${machine.value} is not this machine`;
}

function showChoices(target) {
  matchEvaluator(target);
  showModelInputs();
  showEvaluatorInputs();
  showDimensions(form);
}

function changed({ target }) {
  const slurm = form.elements.evaluator.value === "slurm";
  if (slurm && ["evaluator", "slurm.profile"].includes(target.name)) {
    chooseMachineOf(form.elements["slurm.profile"]);
  }
  showChoices(target);
}

function startFrom(example) {
  form.reset();
  switched.hidden = true;
  fillIn(form, example);
  showChoices();
  clearErrors(form);
  report.hidden = true;
  estimate();
}

async function attempt(work) {
  clearErrors(form);
  report.hidden = true;
  for (const button of buttons) button.disabled = true;
  try {
    await work(values(form));
  } catch (problem) {
    showErrors(form, problem);
  }
  for (const button of buttons) button.disabled = false;
}

// --- a shape from a file --------------------------------------------------------------------------

async function loadShape({ target }) {
  clearErrors(form);
  try {
    fillIn(form, await send("POST", "/fragments/shape", await jsonOf(target.files[0])));
    estimate();
  } catch (problem) {
    showErrorsAt(target, problem);
  }
}

async function jsonOf(file) {
  try {
    return JSON.parse(await file.text());
  } catch (error) {
    throw new Problem(0, { detail: `${file.name} is not JSON: ${error.message}` });
  }
}

// --- what a campaign is made of -------------------------------------------------------------------

async function start(body) {
  const campaign = await create("/api/v1/campaigns", body);
  location.assign(`/campaigns/${campaign.id}`);
}

async function check(body) {
  show(await send("POST", "/api/v1/campaigns?dry_run=true", body));
}

// --- the report of a check ------------------------------------------------------------------------

// Three significant digits, more where the whole number has more.
function number(value) {
  const digits = Math.max(3, String(Math.trunc(value)).length);
  return value.toLocaleString("en", { maximumSignificantDigits: digits });
}

function element(name, text, className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

function tile(label, count, note) {
  const made = document.createElement("div");
  const value = element("dd", number(count));
  value.append(element("small", note));
  made.append(element("dt", label), value);
  return made;
}

function show(plan) {
  const { model, cost } = plan;
  document.getElementById("report-counts").replaceChildren(
    tile("Layouts in all", plan.raw, "legal or not"),
    tile("Legal", plan.legal, "in the search space"),
    tile("Fitting", plan.fitting, "probably fit in memory"),
    tile("Layouts to try", plan.layouts, `of ${number(plan.legal_layouts)} that are legal, differing in more than GAS`),
    tile("Node-hours, expected", cost.node_hours, "with the whole budget of trials"),
  );
  document.getElementById("report-cost").textContent =
    `A trial is expected to cost ${number(cost.node_hours_per_trial)} node-hours; ` +
    `the budget buys ${number(cost.trials)} trials. ` +
    (cost.knob_starts ? `Knobs take about ${number(cost.knob_starts)} more starts. ` : "") +
    `Model: ${model.name}, ${model.num_layers} layers, hidden ${model.hidden_size}, ` +
    `${model.num_attention_heads} heads. ` +
    `Global batch sizes: ${listed(plan.global_batch_sizes)}. ${plan.baseline ? `Measured first: ${plan.baseline_sentence}.` : ""} ` +
    plan.screening.reason;
  document.getElementById("report-warnings").replaceChildren(...plan.warnings.map((text) => element("li", text)));
  document.getElementById("report-left-out").hidden = !plan.left_out.length;
  document.getElementById("report-left-out-list").replaceChildren(...plan.left_out.map(({ sentence }) => element("li", sentence)));
  document.getElementById("report-refusals").replaceChildren(...plan.refusals.map(refusalRow));
  document.getElementById("report-refusals-title").textContent =
    plan.refusals.length ? "Excluded layouts and warnings, by rule" : "No layout is excluded";
  report.hidden = false;
  report.scrollIntoView({ block: "nearest" });
}

function refusalRow({ count, rule, reason, severity }) {
  const row = document.createElement("tr");
  row.append(element("td", number(count), "number"));
  row.append(element("td", severity === "warn" ? `${rule} (warning only)` : rule), element("td", reason));
  return row;
}

function listed(sizes) {
  if (sizes.length <= 6) return sizes.map((size) => number(size)).join(", ") || "none";
  return `${sizes.length} different ones, from ${number(Math.min(...sizes))} to ${number(Math.max(...sizes))}`;
}

// --- what is predicted before it runs -------------------------------------------------------------

const more = document.getElementById("foreseen-more");
const foreseen = answers({
  url: "/fragments/plan?view=form",
  question: () => (form.elements.machine.value === "" ? null : values(form)),
  region: document.getElementById("foreseen-answer"),
  progress: document.getElementById("foreseen-progress"),
});

function estimate() {
  const shape = form.elements["model-given"].value === "shape";
  if (shape) showExperts("", form.elements["model.experts"].value.trim());
  else showExperts(form.elements.model.value);
  more.hidden = shape; // the page of plans takes a model by its name
  more.href = `/plan?${inAddress(form)}`;
  foreseen.soon();
}

document.getElementById("foreseen-answer").addEventListener("click", ({ target }) => {
  const button = target.closest("[data-question]");
  if (!button) return;
  fillIn(form, JSON.parse(button.dataset.question));
  estimate();
});

form.addEventListener("change", changed);
form.elements.model.addEventListener("input", () => showLength(form));
form.addEventListener("input", estimate);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(start);
});
const config = document.getElementById("config");
config.addEventListener("change", loadShape);
// So that a corrected file of the same name is read again.
config.addEventListener("click", () => (config.value = ""));
document.getElementById("check").addEventListener("click", () => attempt(check));
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", () => startFrom(JSON.parse(button.dataset.example)));
}
showLength(form);
if (form.dataset.fill) fillIn(form, JSON.parse(form.dataset.fill));
filledFromAddress(form);
showChoices();
estimate();
document.body.dataset.ready = "true";
