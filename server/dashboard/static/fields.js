// A problem's errors, each at its field; those without a field stand together at the form's end.

export function clearErrors(form) {
  for (const input of form.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.setAttribute("aria-describedby", input.dataset.hint ?? "");
  }
  for (const message of form.querySelectorAll(".field-error")) message.remove();
  form.querySelector("[data-errors]").hidden = true;
}

export function showErrors(form, problem) {
  const left = [];
  let first = null;
  for (const error of problem.errors) {
    const input = inputOf(form, error.field);
    const text = sentence(error);
    if (!input) {
      left.push(`${error.field}: ${text}`);
      continue;
    }
    const part = error.field.split(".").at(-1);
    const inTable = input.dataset.kind === "table" && !input.name.endsWith(part);
    mark(input, inTable ? `${part}: ${text}` : text);
    first ??= input;
  }
  const box = form.querySelector("[data-errors]");
  if (problem.errors.length === 0) left.push(problem.message);
  box.textContent = left.join(" ");
  box.hidden = left.length === 0;
  reveal(first ?? box);
}

// All of a problem at one input, such as the file that was refused.
export function showErrorsAt(input, problem) {
  const texts = problem.errors.map((error) => `${error.field}: ${sentence(error)}`);
  mark(input, texts.join(" ") || problem.message);
  reveal(input);
}

const sentence = ({ reason, valid }) => (valid ? `${reason} (valid: ${valid})` : reason);

// The field itself, or the nearest one that holds it: a refused part of a choice belongs to its input.
function inputOf(form, field) {
  const path = field.split(".").filter((part) => part !== "body");
  for (let length = path.length; length > 0; length -= 1) {
    const name = path.slice(0, length).join(".");
    const found = [...form.querySelectorAll(`[name="${CSS.escape(name)}"]`)];
    const visible = found.find((input) => !input.closest("[hidden]"));
    if (visible) return visible;
  }
  const tail = CSS.escape(path.at(-1));
  const parts = [...form.querySelectorAll(`[name^="${CSS.escape(path.join("."))}."]`)];
  const part = parts.find((input) => !input.closest("[hidden]"));
  return part ?? (path.length === 1 ? form.querySelector(`[name$=".${tail}"]`) : null);
}

function mark(input, text) {
  const message = document.createElement("p");
  message.className = "field-error";
  message.id = `error-${(input.name || input.id).replaceAll(".", "-")}`;
  message.textContent = text;
  document.getElementById(message.id)?.remove();
  input.setAttribute("aria-invalid", "true");
  input.setAttribute("aria-describedby", `${input.dataset.hint ?? ""} ${message.id}`.trim());
  (input.closest(".field") ?? input.parentElement).append(message);
}

function reveal(element) {
  element.closest("details")?.setAttribute("open", "");
  element.scrollIntoView({ block: "center" });
  element.focus?.({ preventScroll: true });
}

// Fields of the dimensions that only a model with experts has: one of the catalog, or a shape with
// some.
export function showExperts(model, experts = "") {
  const chosen = document.querySelector(`#models option[value="${CSS.escape(model)}"]`);
  const has = experts !== "" || (chosen?.hasAttribute("data-experts") ?? false);
  for (const field of document.querySelectorAll(".of-experts")) field.hidden = !has;
}

// A trainer that a file describes varies some dimensions; there is nothing to say of the others.
export function showDimensions(form) {
  const { adapter } = form.elements;
  const varied = adapter.selectedOptions[0]?.dataset.dimensions?.split(" ");
  const fixed = [];
  for (const input of form.querySelectorAll(".dimensions [name^='space.']")) {
    const field = input.closest(".field");
    const name = input.name.replace("space.", "");
    if (name === "settings") {
      field.hidden = !varied?.some((each) => !form.elements[`space.${each}`]);
      continue;
    }
    field.hidden = varied !== undefined && !varied.includes(name);
    if (field.hidden && !field.closest(".of-experts[hidden]")) fixed.push(field.querySelector("label").textContent);
  }
  const note = document.getElementById("varied");
  note.hidden = fixed.length === 0;
  note.textContent = `${adapter.value} does not vary: ${fixed.join(", ")}.`;
}
