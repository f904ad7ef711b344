// What stands in a form, as the JSON that the API takes. Nothing is judged here: dimensions and tokens
// are sent as they were typed, as is what cannot be read as its kind, and the API reads them.

const READERS = {
  text: (text) => text,
  number: (text) => asNumber(text),
  flag: (text) => text === "true",
  table: (text) => asTable(text),
  moment: (text) => (Number.isNaN(Date.parse(text)) ? text : new Date(text).toISOString()),
};

// Inputs named `a.b` become `{a: {b: …}}`; empty and hidden ones are left out.
export function values(form) {
  const result = {};
  for (const input of form.elements) {
    const { choice, kind = "text" } = input.dataset;
    const skipped = !input.name || choice !== undefined || input.closest("[hidden]");
    const text = skipped ? "" : textOf(input);
    if (text !== "") place(result, input.name.split("."), READERS[kind](text));
  }
  return result;
}

// The model's name is followed by the sequence length, if that is not its own: `gpt-22b,seq=8192`.
function textOf(input) {
  const text = input.value.trim();
  if (input.name !== "model") return text;
  const length = input.form.elements.seq_length.value.replaceAll(/,(?=\d{3}\b)|\s/g, "");
  return length === "" || length === ownLength(text) ? text : `${text},seq=${length}`;
}

const ownLength = (model) =>
  document.querySelector(`#models option[value="${CSS.escape(model)}"]`)?.dataset.seqLength ?? "";

export function showLength(form, length = ownLength(form.elements.model.value.trim())) {
  form.elements.seq_length.value = length;
}

function place(target, path, value) {
  const [first, ...rest] = path;
  if (rest.length === 0) target[first] = value;
  else place((target[first] ??= {}), rest, value);
}

function asNumber(text) {
  const number = Number(text.replaceAll(",", ""));
  return Number.isFinite(number) ? number : text;
}

// `a=1 b=2` becomes `{a: 1, b: 2}`.
function asTable(text) {
  const pairs = text.split(/[\s,]+/).map((word) => word.split("="));
  if (pairs.some((pair) => pair.length !== 2)) return text;
  return Object.fromEntries(pairs.map(([name, value]) => [name, asNumber(value)]));
}

// Puts texts into the inputs that have these names; what there is no input for is left.
export function fillIn(form, texts) {
  for (const [name, text] of Object.entries(texts)) {
    const input = form.elements[name];
    if (!input) continue;
    const [value, length] = name === "model" ? text.split(",seq=") : [text];
    input.value = value;
    if (name === "model") showLength(form, length);
    if (text !== initial(input)) input.closest?.("details")?.setAttribute("open", "");
  }
}

// What stands in a form, as the query of an address; `filledFromAddress` takes it up again.
export function inAddress(form) {
  const search = new URLSearchParams();
  for (const input of form.elements) {
    if (!input.name || input.dataset.choice !== undefined || input.closest("[hidden]")) continue;
    const text = textOf(input);
    if (text !== "" || initial(input) !== "") search.set(input.name, text);
  }
  return search;
}

// What an input has before anything is typed.
function initial(input) {
  if (!input.options) return input.defaultValue ?? "";
  const options = [...input.options];
  return (options.find((option) => option.defaultSelected) ?? options[0])?.value ?? "";
}

// Returns whether the address had anything for the form.
export function filledFromAddress(form) {
  const texts = Object.fromEntries(new URLSearchParams(location.search));
  fillIn(form, texts);
  return Object.keys(texts).some((name) => form.elements[name]);
}
