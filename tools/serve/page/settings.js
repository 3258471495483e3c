// The settings of answers: fields of a request, in a form that the browser remembers. An empty field
// leaves the choice to the server, whose own value stands beside it.
import { make } from "./markdown.js";
import { read, write } from "./storage.js";

const STORE = "kvant.settings";
// Field of the request, label, least, most, step.
const NUMBERS = [
  ["temperature", "Temperature", 0, 100, "any"],
  ["top_p", "Top-p", 0, 1, "any"],
  ["top_k", "Top-k", 0, 1000000, 1],
  ["min_p", "Min-p", 0, 1, "any"],
  ["repeat_penalty", "Repeat penalty", 0, 100, "any"],
  ["seed", "Seed", 0, Number.MAX_SAFE_INTEGER, 1],
  ["max_tokens", "Most tokens", 1, 1000000000, 1],
];
const EFFORTS = [["", "As the model does"], ["none", "None"], ["low", "Few"], ["medium", "Some"],
  ["high", "Many"]];

const fields = new Map(); // name -> its control

function kept() {
  try {
    return JSON.parse(read("local", STORE)) ?? {};
  } catch {
    return {};
  }
}

function keep() {
  const values = [...fields].map(([name, control]) => [name, control.value]);
  write("local", STORE, JSON.stringify(Object.fromEntries(values)));
}

// Says what is wrong with a schema, "" if nothing is.
function schemaProblem(text) {
  try {
    const value = text.trim() ? JSON.parse(text) : {};
    const holds = value && typeof value === "object" && !Array.isArray(value);
    return holds ? "" : "expected a JSON object";
  } catch (error) {
    return error.message;
  }
}

// Builds the form.
export function build(numbers, effort, schema, schemaNote) {
  for (const [name, label, min, max, step] of NUMBERS) {
    const input = make("input", { type: "number", id: "field-" + name, min, max, step });
    const note = make("span", { id: "note-" + name, className: "note" });
    input.setAttribute("aria-describedby", note.id);
    numbers.append(make("div", {}, make("label", { htmlFor: input.id, textContent: label }), input, note));
    fields.set(name, input);
  }
  effort.append(...EFFORTS.map(([value, textContent]) => make("option", { value, textContent })));
  fields.set("reasoning_effort", effort);
  fields.set("json_schema", schema);
  const saved = kept();
  for (const [name, control] of fields) {
    if (typeof saved[name] === "string") control.value = saved[name];
    control.addEventListener("input", () => {
      keep();
      check();
    });
  }
  const check = () => {
    const problem = schemaProblem(schema.value);
    schema.setCustomValidity(problem);
    schema.setAttribute("aria-invalid", String(problem !== ""));
    schemaNote.textContent = problem ? "This is no schema: " + problem : "";
  };
  check();
}

// Shows the server's own values (those of /props).
export function showDefaults(values) {
  for (const [name] of NUMBERS) {
    const value = values?.[name];
    if (!Number.isFinite(value)) continue;
    const shown = value < 0 ? (name === "seed" ? "any" : "no limit") : String(+value.toFixed(4));
    document.getElementById("note-" + name).textContent = "server: " + shown;
  }
}

export function clear() {
  for (const control of fields.values()) control.value = "";
  keep();
  fields.get("json_schema").dispatchEvent(new Event("input"));
}

// The fields of a request. Throws where one is wrong, with its label.
export function request() {
  const out = {};
  for (const [name, control] of fields) {
    if (control.validity.badInput || !control.checkValidity()) {
      const label = control.labels[0]?.textContent ?? name;
      throw new Error(`${label}: ${control.validationMessage}`);
    }
    if (control.value.trim() === "") continue;
    if (name === "json_schema") out[name] = JSON.parse(control.value);
    else out[name] = control.type === "number" ? control.valueAsNumber : control.value;
  }
  return out;
}
