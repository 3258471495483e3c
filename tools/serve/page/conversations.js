// Conversations: trees of messages that the browser keeps.
//
// A conversation has a list of messages; each names the one before it by `parent` (0: none). Messages
// with one parent are branches, and the parent's `shown` is the id of the one that is on the page.
import { names, read, write } from "./storage.js";

const PREFIX = "kvant.conversation.";
const FORMAT = "kvant conversations";
const ROLES = ["user", "assistant"];
const TITLE_MAX = 60;

const all = new Map(); // id -> conversation

function load(key) {
  try {
    const found = cleaned(JSON.parse(read("local", key)), key);
    all.set(found.id, found);
  } catch (error) {
    console.warn(key, error.message);
  }
}

export function loadAll() {
  all.clear();
  for (const key of names("local")) {
    if (key.startsWith(PREFIX)) load(key);
  }
}

// What another tab did. Returns the id of the conversation, "" if it is none.
export function takeChange({ key, newValue }) {
  if (key === null) all.clear();
  if (!key?.startsWith(PREFIX)) return "";
  const id = key.slice(PREFIX.length);
  if (newValue === null) all.delete(id);
  else load(key);
  return id;
}

export const find = (id) => all.get(id);
export const newestFirst = () => [...all.values()].sort((a, b) => b.updated - a.updated);

export function create() {
  const random = Math.random().toString(36).slice(2, 10);
  return { id: Date.now().toString(36) + random, title: "", system: "", updated: Date.now(), shown: 0, messages: [] };
}

// Returns why the browser did not keep it, "" if it did.
export function save(conversation, updated = Date.now()) {
  conversation.updated = updated;
  all.set(conversation.id, conversation);
  if (write("local", PREFIX + conversation.id, JSON.stringify(conversation))) return "";
  return "The browser does not keep this conversation: its storage is full or off. " +
    "Export conversations, then delete some.";
}

export function remove(conversation) {
  all.delete(conversation.id);
  write("local", PREFIX + conversation.id, null);
}

// ---- Trees ---------------------------------------------------------------------------------------

const byId = (conversation, id) => conversation.messages.find((one) => one.id === id);

export const branchesOf = (conversation, message) =>
  conversation.messages.filter((one) => one.parent === message.parent);

// The messages on the page, in order.
export function path(conversation) {
  const children = new Map();
  for (const one of conversation.messages) {
    if (!children.has(one.parent)) children.set(one.parent, []);
    children.get(one.parent).push(one);
  }
  const out = [];
  let before = conversation;
  while (true) {
    const next = children.get(before === conversation ? 0 : before.id);
    if (!next) return out;
    before = next.find((one) => one.id === before.shown) ?? next.at(-1);
    out.push(before);
  }
}

// The messages that lead to one, and it.
export function pathTo(conversation, message) {
  const out = [];
  for (let one = message; one; one = byId(conversation, one.parent)) out.unshift(one);
  return out;
}

export function show(conversation, message) {
  (byId(conversation, message.parent) ?? conversation).shown = message.id;
}

export function add(conversation, before, role, content) {
  const id = 1 + conversation.messages.reduce((most, one) => Math.max(most, one.id), 0);
  const message = { id, parent: before ? before.id : 0, role, content, shown: 0 };
  conversation.messages.push(message);
  show(conversation, message);
  if (!conversation.title && role === "user") {
    const line = content.trim().split("\n")[0];
    conversation.title = line.length > TITLE_MAX ? line.slice(0, TITLE_MAX - 1) + "…" : line;
  }
  return message;
}

// Takes a message away, with all that follows it.
export function cut(conversation, message) {
  const gone = new Set([message.id]);
  for (const one of conversation.messages) { // whoever follows stands behind
    if (gone.has(one.parent)) gone.add(one.id);
  }
  conversation.messages = conversation.messages.filter((one) => !gone.has(one.id));
}

// ---- Files ---------------------------------------------------------------------------------------

function expect(holds, place, expected, found) {
  if (holds) return;
  const shown = found === undefined ? "nothing" : JSON.stringify(found).slice(0, 60);
  throw new Error(`${place}: expected ${expected}, found ${shown}`);
}

const isText = (value) => typeof value === "string";
const isId = (value) => Number.isSafeInteger(value) && value > 0;

function cleanedCall(call, place) {
  expect(isText(call?.name), place + ".name", "a text", call?.name);
  expect(isText(call.arguments), place + ".arguments", "a text", call.arguments);
  return { name: call.name, arguments: call.arguments };
}

function cleanedMessage(message, known, place) {
  expect(isId(message?.id) && !known.has(message.id), place + ".id", "a new number", message?.id);
  expect(message.parent === 0 || known.has(message.parent), place + ".parent",
    "the id of a message before, or 0", message.parent);
  expect(ROLES.includes(message.role), place + ".role", "user or assistant", message.role);
  expect(isText(message.content), place + ".content", "a text", message.content);
  known.add(message.id);
  const out = { id: message.id, parent: message.parent, role: message.role, content: message.content,
    shown: isId(message.shown) ? message.shown : 0 };
  for (const name of ["reasoning", "error", "stats"]) {
    if (isText(message[name])) out[name] = message[name];
  }
  if (message.cut === true) out.cut = true;
  if (Array.isArray(message.calls)) {
    out.calls = message.calls.map((call, i) => cleanedCall(call, `${place}.calls[${i}]`));
  }
  return out;
}

// A conversation with the members that are known, or an error that names what is wrong.
function cleaned(value, place) {
  expect(value && typeof value === "object", place, "a conversation", value);
  expect(isText(value.id) && /^\w{1,64}$/.test(value.id), place + ".id",
    "1 to 64 letters and digits", value.id);
  expect(isText(value.title), place + ".title", "a text", value.title);
  expect(Array.isArray(value.messages), place + ".messages", "a list", value.messages);
  const known = new Set();
  return { id: value.id, title: value.title, system: isText(value.system) ? value.system : "",
    updated: Number.isFinite(value.updated) ? value.updated : Date.now(),
    shown: isId(value.shown) ? value.shown : 0,
    messages: value.messages.map((one, i) =>
      cleanedMessage(one, known, `${place}.messages[${i}]`)) };
}

export const exported = () =>
  JSON.stringify({ format: FORMAT, version: 1, conversations: newestFirst() }, null, 1);

// Takes the conversations of a file. One that is there already, but differs, becomes a second one.
// Returns how many were taken; throws, and takes none, where the file is wrong.
export function take(text) {
  const file = JSON.parse(text);
  expect(file?.format === FORMAT, "format", `"${FORMAT}"`, file?.format);
  expect(file.version === 1, "version", "1", file.version);
  expect(Array.isArray(file.conversations), "conversations", "a list", file.conversations);
  const found = file.conversations.map((one, i) => cleaned(one, `conversations[${i}]`));
  for (const one of found) {
    const there = all.get(one.id);
    if (there && JSON.stringify(cleaned(there, "")) === JSON.stringify(one)) continue;
    if (there) one.id = create().id;
    const problem = save(one, one.updated);
    if (problem) throw new Error(problem);
  }
  return found.length;
}
