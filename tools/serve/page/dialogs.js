// Questions that the page asks.
import * as client from "./client.js";

const $ = (id) => document.getElementById(id);

// Resolves to the text of the field ("yes" where there is none), or null where it was left.
export function question({ title, note = "", label = "", value = "", type = "text", yes = "OK" }) {
  const dialog = $("question");
  const field = $("question-field");
  $("question-title").textContent = title;
  $("question-note").textContent = note;
  $("question-label").textContent = label;
  $("question-yes").textContent = yes;
  Object.assign(field, { hidden: !label, type, value });
  dialog.returnValue = "";
  dialog.showModal();
  (label ? field : $("question-no")).focus();
  field.select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" ? (label ? field.value : "yes") : null);
      field.value = "";
    }, { once: true });
  });
}

let asksKey = null;
// Asks for the key once, however many requests want it.
export function askKey(reason) {
  asksKey ??= (async () => {
    const key = await question({ title: "API key", note: reason, label: "Key", type: "password" });
    asksKey = null;
    if (key === null) return false;
    client.saveKey(key.trim());
    return true;
  })();
  return asksKey;
}
