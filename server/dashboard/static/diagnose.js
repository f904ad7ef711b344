// The page of diagnoses: sends the dropped log, and shows the answer.

import { upload } from "./requests.js";

const question = document.getElementById("question");
const drop = document.getElementById("drop");
const input = document.getElementById("log");
const answer = document.getElementById("answer");
const progress = document.getElementById("progress");
let file = null;
let sent = null;

async function ask() {
  if (!file) return;
  sent?.abort();
  sent = new AbortController();
  const { signal } = sent;
  progress.hidden = false;
  const query = new URLSearchParams({ name: file.name });
  for (const [name, text] of new FormData(question)) if (text.trim()) query.set(name, text.trim());
  try {
    answer.replaceChildren(await upload(`/fragments/diagnosis?${query}`, file, signal));
  } catch (problem) {
    if (signal.aborted) return;
    const notice = document.createElement("p");
    notice.className = "notice error";
    notice.role = "alert";
    notice.textContent = problem.message;
    answer.replaceChildren(notice);
    document.getElementById("more").open = true;
  }
  progress.hidden = true;
}

function take(files) {
  if (!files.length) return;
  [file] = files;
  drop.firstElementChild.textContent = file.name;
  ask();
}

input.addEventListener("change", () => take(input.files));
question.addEventListener("change", ({ target }) => target !== input && ask());
question.addEventListener("submit", (event) => event.preventDefault());
for (const [name, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", over);
    if (name === "drop") take(event.dataTransfer.files);
  });
}
document.body.dataset.ready = "true";
