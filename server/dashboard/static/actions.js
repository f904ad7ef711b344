// The buttons of a campaign: pause, resume, cancel, extend, delete; who sees it; its repetition.

import { clearErrors, showErrors } from "./fields.js";
import { values } from "./values.js";
import { send } from "./requests.js";

const summary = document.getElementById("summary");
const alertBox = document.getElementById("action-error");
const confirmDialog = document.getElementById("confirm");
const extendDialog = document.getElementById("extend");
const extendForm = document.getElementById("extend-form");

const CHANGES = { hide: { private: true }, show: { private: false } };

const QUESTIONS = {
  cancel: ["Cancel this campaign? Running trials are stopped; results are kept.", "Cancel the campaign"],
  delete: ["Delete this campaign with all its trials? This cannot be undone.", "Delete the campaign"],
};

// `onLeave(true)` is called before a campaign is deleted, `onLeave(false)` where that was refused.
export function start(url, { onChange, onLeave }) {
  summary.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button) act(button, url, { onChange, onLeave });
  });
  extendDialog.querySelector("[data-close]").addEventListener("click", () => extendDialog.close());
  extendForm.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearErrors(extendForm);
    try {
      await send("POST", `${url}/extend`, values(extendForm));
      extendDialog.close();
      onChange();
    } catch (problem) {
      showErrors(extendForm, problem);
    }
  });
}

async function act(button, url, { onChange, onLeave }) {
  const action = button.dataset.action;
  if (action === "extend") {
    extendDialog.showModal();
    return;
  }
  if (QUESTIONS[action] && !(await agreed(...QUESTIONS[action]))) return;
  button.disabled = true;
  alertBox.hidden = true;
  try {
    if (action === "delete") await leave(url, onLeave);
    else if (CHANGES[action]) await send("PATCH", url, CHANGES[action]);
    else await send("POST", `${url}/${action}`);
    onChange();
  } catch (problem) {
    alertBox.textContent = problem.message;
    alertBox.hidden = false;
  }
  button.disabled = false;
}

async function leave(url, onLeave) {
  onLeave(true);
  try {
    await send("DELETE", url);
    location.assign("/");
  } catch (problem) {
    onLeave(false);
    throw problem;
  }
}

function agreed(question, yes) {
  document.getElementById("confirm-text").textContent = question;
  document.getElementById("confirm-yes").textContent = yes;
  confirmDialog.returnValue = "no";
  confirmDialog.showModal();
  return new Promise((resolve) => {
    confirmDialog.addEventListener("close", () => resolve(confirmDialog.returnValue === "yes"), { once: true });
  });
}
