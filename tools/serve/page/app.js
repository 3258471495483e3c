// The page: which conversation is shown, what its buttons and keys do, and the answers under way.
import { answer, allRuns, count, hooks, progressOf, runOf, server, stop } from "./answers.js";
import * as client from "./client.js";
import * as conversations from "./conversations.js";
import { askKey, question } from "./dialogs.js";
import { make } from "./markdown.js";
import { MessageView } from "./messages.js";
import * as settings from "./settings.js";
import { read, write } from "./storage.js";

const WAIT_MS = [1000, 2000, 4000, 8000]; // between questions whether the server is back
const SPOKEN_MAX = 4000; // characters of an answer that a screen reader is given at its end

const $ = (id) => document.getElementById(id);
const input = $("input");
let current = conversations.create();
let views = new Map(); // id of a message on the page -> its view
let lastModels = "";
const failed = []; // what is asked again when the server is back

function say(text) {
  $("status").textContent = text;
}

function warn(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

// ---- The server ----------------------------------------------------------------------------------

let waiting = false;
// Tells that the server is gone, and asks until it is back.
async function waitForServer(reason, repeat) {
  if (repeat) failed.push(repeat);
  if (waiting) return;
  waiting = true;
  for (let tries = 0; ; tries += 1) {
    warn(`${reason[0].toUpperCase()}${reason.slice(1)}. Trying again…`);
    await new Promise((resolve) => { setTimeout(resolve, WAIT_MS[Math.min(tries, WAIT_MS.length - 1)]); });
    try {
      await client.get("health");
      break;
    } catch (error) {
      reason = error.message;
    }
  }
  waiting = false;
  warn("");
  say("The server is back.");
  await findModels();
  for (const run of failed.splice(0)) run();
}

async function findModels() {
  try {
    const models = (await client.get("v1/models")).data;
    const select = $("model");
    const names = models.map((one) => String(one.id));
    if (names.join("\n") !== lastModels) {
      const chosen = select.value || read("local", "kvant.model");
      select.replaceChildren(...names.map((name) => make("option", { value: name, textContent: name })));
      if (names.includes(chosen)) select.value = chosen;
      lastModels = names.join("\n");
    }
    select.hidden = names.length < 2;
    $("model-name").hidden = !select.hidden;
    $("model-name").textContent = names[0] ?? "";
    server.model = select.value;
    server.context = models.find((one) => one.id === select.value)?.max_model_len ?? 0;
    $("facts").textContent = `${select.value} answers, with a context of ${count(server.context, "token")}. ` +
      "Conversations stay in this browser.";
    settings.showDefaults((await client.get("props")).default_generation_settings?.params);
  } catch (error) {
    if (error instanceof client.Unreachable || error.status === 503) waitForServer(error.message);
    else if (error.status === 401 && await askKey(error.message)) await findModels();
    else $("facts").textContent = error.message;
  }
}

// ---- Answers -------------------------------------------------------------------------------------

hooks.saved = (problem) => {
  if (problem) warn(problem);
};
hooks.gone = waitForServer;

hooks.begun = (run) => {
  if (run.conversation !== current) return;
  draw();
  toEnd();
  say("The model answers.");
};

// Draws a growing answer, at most once a frame.
hooks.grew = (run) => {
  if (run.frame) return;
  run.frame = requestAnimationFrame(() => {
    run.frame = 0;
    if (run.conversation !== current || runOf(current) !== run) return;
    const follows = isAtEnd();
    views.get(run.message.id)?.update();
    $("progress").textContent = progressOf(run);
    if (follows) toEnd();
  });
};

hooks.ended = ({ conversation, message }) => {
  if (conversation !== current) return drawList();
  const follows = isAtEnd();
  const view = views.get(message.id);
  if (view) { // the others stay: one may be in a field for changes
    view.setBusy(false);
    drawState();
  } else {
    draw();
  }
  if (follows) toEnd();
  say(message.error ?? (message.content || "The answer has no text.").slice(0, SPOKEN_MAX));
};

function keep(conversation) {
  hooks.saved(conversations.save(conversation));
}

// ---- What buttons do -----------------------------------------------------------------------------

const act = {
  async again(message) {
    const conversation = current;
    await stop(conversation);
    const isEmpty = !message.content && !message.reasoning;
    const before = { id: message.parent };
    await answer(conversation, isEmpty ? message : conversations.add(conversation, before, "assistant", ""));
  },
  goOn: (message) => answer(current, message, "go on"),
  async edited(message, text) {
    const conversation = current;
    await stop(conversation);
    const changed = conversations.add(conversation, { id: message.parent }, "user", text);
    input.focus();
    await answer(conversation, conversations.add(conversation, changed, "assistant", ""));
  },
  show(message, step) {
    conversations.show(current, message);
    keep(current);
    draw();
    const buttons = views.get(message.id).actions;
    const wanted = buttons.querySelector(`[data-name="${step < 0 ? "before" : "after"}"]`);
    (wanted.disabled ? buttons.querySelector(".branches button:enabled") : wanted).focus();
  },
};

async function send() {
  const text = input.value;
  if (!text.trim()) return;
  const conversation = current;
  await stop(conversation);
  input.value = "";
  resize();
  const asked = conversations.add(conversation, conversations.path(conversation).at(-1), "user", text);
  await answer(conversation, conversations.add(conversation, asked, "assistant", ""));
}

// Takes the last message of the user back into the field, with what was answered.
async function undo() {
  await stop(current);
  const last = conversations.path(current).findLast((one) => one.role === "user");
  if (!last) return;
  if (!input.value.trim()) input.value = last.content;
  conversations.cut(current, last);
  keep(current);
  draw();
  resize();
  input.focus();
  say("The last message was taken back.");
}

const lastOf = (role) => conversations.path(current).findLast((one) => one.role === role);

function regenerateLast() {
  const message = lastOf("assistant");
  if (message) act.again(message);
}

function showBranch(step) {
  for (const message of conversations.path(current).reverse()) {
    const branches = conversations.branchesOf(current, message);
    if (branches.length < 2) continue;
    const to = branches[branches.indexOf(message) + step];
    if (to && !runOf(current)) act.show(to, step);
    return;
  }
}

function open(conversation) {
  current = conversation;
  write("session", "kvant.current", conversation.id);
  $("system").value = conversation.system;
  showSidebar(false);
  draw();
  toEnd();
}

function begin() {
  open(conversations.create());
  input.focus();
}

async function rename(conversation) {
  const title = await question({ title: "Rename", label: "Title", value: conversation.title });
  if (title === null || !title.trim()) return;
  conversation.title = title.trim();
  keep(conversation);
  draw();
}

async function remove(conversation) {
  const note = `“${conversation.title}” will be gone from this browser.`;
  if (!await question({ title: "Delete this conversation?", note, yes: "Delete" })) return;
  await stop(conversation);
  conversations.remove(conversation);
  if (conversation === current) begin();
  else drawList();
  $("new").focus();
}

function exportAll() {
  const url = URL.createObjectURL(new Blob([conversations.exported()], { type: "application/json" }));
  const day = new Date().toISOString().slice(0, 10);
  make("a", { href: url, download: `kvant-conversations-${day}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

async function importFile() {
  const file = $("file").files[0];
  $("file").value = "";
  if (!file) return;
  let note = "";
  try {
    note = count(conversations.take(await file.text()), "conversation") + " taken from " + file.name + ".";
  } catch (error) {
    note = `${file.name}: ${error.message}`;
  }
  drawList();
  await question({ title: "Import", note });
}

// ---- Drawing -------------------------------------------------------------------------------------

const isAtEnd = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 80;
function toEnd() {
  $("scroll").scrollTop = $("scroll").scrollHeight;
}

function drawList() {
  $("conversations").replaceChildren(...conversations.newestFirst().map((one) => {
    const opens = make("button", { type: "button", className: "opens", textContent: one.title || "Untitled",
      title: one.title, onclick: () => open(one) });
    if (one.id === current.id) opens.setAttribute("aria-current", "page");
    if (runOf(one)) opens.append(make("span", { className: "busy", textContent: " …" }));
    const names = make("button", { type: "button", className: "plain", textContent: "✎", title: "Rename",
      onclick: () => rename(one) });
    const removes = make("button", { type: "button", className: "plain", textContent: "✕", title: "Delete",
      onclick: () => remove(one) });
    names.setAttribute("aria-label", "Rename " + one.title);
    removes.setAttribute("aria-label", "Delete " + one.title);
    return make("li", {}, opens, names, removes);
  }));
}

function draw() {
  const path = conversations.path(current);
  const run = runOf(current);
  views = new Map(path.map((message, i) => [message.id, new MessageView(message, {
    branches: conversations.branchesOf(current, message), busy: run?.message === message,
    last: i === path.length - 1, name: message.role === "user" ? "You" : "Answer",
  }, act)]));
  $("messages").replaceChildren(...[...views.values()].map((view) => view.element));
  $("empty").hidden = path.length > 0;
  $("undo").disabled = path.length === 0;
  $("title").textContent = current.title || "New conversation";
  document.title = current.title ? current.title + " · kvant" : "kvant";
  drawState();
}

// Draws what depends on whether an answer is under way.
function drawState() {
  const run = runOf(current);
  $("messages").setAttribute("aria-busy", String(Boolean(run)));
  $("send").hidden = Boolean(run);
  $("stop").hidden = !run;
  if (!run) $("progress").textContent = "";
  drawList();
}

// Makes the field as high as its text.
function resize() {
  input.style.height = "auto";
  input.style.height = Math.min(input.scrollHeight + 2, innerHeight * 0.4) + "px";
}

function showSidebar(shown) {
  const before = document.body.classList.contains("with-sidebar");
  document.body.classList.toggle("with-sidebar", shown);
  $("menu").setAttribute("aria-expanded", String(shown));
  $("shade").hidden = !shown;
  if (shown) $("close-sidebar").focus();
  else if (before) $("menu").focus();
}

// ---- Keys ----------------------------------------------------------------------------------------

const KEYS = {
  KeyN: begin,
  KeyR: regenerateLast,
  KeyU: undo,
  KeyS: () => $("settings").showModal(),
  KeyK: () => $("keys").showModal(),
  Comma: () => showBranch(-1),
  Period: () => showBranch(1),
};

document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("with-sidebar")) showSidebar(false);
    else stop(current);
  } else if (event.altKey && !event.ctrlKey && !event.metaKey && KEYS[event.code]) {
    event.preventDefault();
    KEYS[event.code]();
  }
});

input.addEventListener("keydown", (event) => {
  if (event.isComposing) return; // Enter then takes a word of an input method
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    send();
  } else if (event.key === "ArrowUp" && !input.value) {
    event.preventDefault();
    const message = lastOf("user");
    if (message) views.get(message.id).edit();
  }
});

// ---- Beginning -----------------------------------------------------------------------------------

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
input.addEventListener("input", resize);
$("stop").addEventListener("click", async () => {
  await stop(current);
  input.focus();
});
$("undo").addEventListener("click", undo);
$("new").addEventListener("click", begin);
$("menu").addEventListener("click", () => showSidebar(true));
$("close-sidebar").addEventListener("click", () => showSidebar(false));
$("shade").addEventListener("click", () => showSidebar(false));
$("export").addEventListener("click", exportAll);
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", importFile);
$("open-settings").addEventListener("click", KEYS.KeyS);
$("open-keys").addEventListener("click", KEYS.KeyK);
$("clear-settings").addEventListener("click", settings.clear);
$("question-no").addEventListener("click", () => $("question").close());
for (const closes of document.querySelectorAll(".closes")) {
  closes.addEventListener("click", () => closes.closest("dialog").close());
}
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("close", () => { // Chromium gives a field its focus back, but not its keys
    const focused = document.activeElement;
    focused.blur();
    focused.focus({ preventScroll: true });
  });
}
$("system").addEventListener("input", () => {
  current.system = $("system").value;
  if (current.messages.length) keep(current);
});
$("model").addEventListener("change", () => {
  write("local", "kvant.model", $("model").value);
  findModels();
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible") findModels();
});
addEventListener("pagehide", () => {
  for (const run of allRuns()) keep(run.conversation);
});
addEventListener("storage", (event) => {
  const id = conversations.takeChange(event);
  if (id !== current.id || runOf(current)) return drawList();
  open(conversations.find(id) ?? conversations.create());
});

settings.build($("numbers"), $("effort"), $("schema"), $("schema-note"));
conversations.loadAll();
open(conversations.find(read("session", "kvant.current")) ?? current);
input.focus();
findModels();
