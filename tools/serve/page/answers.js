// Answers under way: one for each conversation at most. A growing answer is saved every second.
import * as client from "./client.js";
import * as conversations from "./conversations.js";
import * as settings from "./settings.js";
import { askKey } from "./dialogs.js";

const SAVE_MS = 1000;

const runs = new Map(); // id of a conversation -> its answer under way
export const runOf = (conversation) => runs.get(conversation.id);
export const allRuns = () => [...runs.values()];

export const count = (number, name) =>
  `${number.toLocaleString("en")} ${name}${number === 1 ? "" : "s"}`;

function requestOf(conversation, message, use) {
  const path = conversations.pathTo(conversation, message);
  if (use !== "go on") path.pop();
  const messages = path.map(({ role, content, reasoning }) =>
    (role === "assistant" && reasoning ? { role, content, reasoning_content: reasoning } : { role, content }));
  if (conversation.system.trim()) messages.unshift({ role: "system", content: conversation.system });
  return { model: server.model, messages, stream_options: { include_usage: true }, ...settings.request() };
}

// Adds what a chunk says to the message and to the counts of the run.
function takeChunk(run, chunk) {
  const { message } = run;
  const choice = chunk.choices?.[0];
  const delta = choice?.delta ?? {};
  if (delta.content || delta.reasoning_content || delta.tool_calls) {
    run.begun ||= performance.now();
    run.pieces += 1;
  }
  if (delta.content) message.content += delta.content;
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
  for (const call of delta.tool_calls ?? []) {
    message.calls ??= [];
    while (message.calls.length <= (call.index ?? 0)) message.calls.push({ name: "", arguments: "" });
    const known = message.calls[call.index ?? 0];
    known.name ||= String(call.function?.name ?? "");
    known.arguments += call.function?.arguments ?? "";
  }
  if (choice?.finish_reason === "length") run.limited = true;
  if (chunk.timings) run.timings = chunk.timings;
  if (chunk.usage) run.usage = chunk.usage;
}

// The line below an answer.
function statsOf({ limited, timings, usage }) {
  const out = [];
  if (timings?.predicted_n) {
    out.push(count(timings.predicted_n, "token"));
    if (timings.predicted_per_second) out.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
  }
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    out.push(`prompt of ${count(usage.prompt_tokens, "token")}, ${cached.toLocaleString("en")} from the cache`);
    if (server.context) out.push(`${Math.round(100 * usage.total_tokens / server.context)} % of the context`);
  }
  if (limited) out.push("cut at the limit of tokens");
  return out.join(" · ");
}

// How far an answer is.
export function progressOf(run) {
  if (!run.begun) return "";
  const seconds = (performance.now() - run.begun) / 1000;
  const rate = run.pieces > 1 && seconds > 0 ? `, ${((run.pieces - 1) / seconds).toFixed(1)} tokens/s` : "";
  return count(run.pieces, "token") + rate;
}

// What the page sets: the server's model and context, and what is called when a run begins, grows and
// ends, and when the server is gone.
export const server = { model: "", context: 0 };
export const hooks = { begun() {}, grew() {}, ended() {}, gone() {}, saved() {} };

const isThere = (conversation, message) =>
  conversations.find(conversation.id)?.messages.includes(message) && !runs.has(conversation.id);

// Has an answer made. `use` is "begin", or "go on": behind what the message says already.
export async function answer(conversation, message, use = "begin") {
  await stop(conversation);
  let body = null;
  try {
    body = requestOf(conversation, message, use);
  } catch (error) { // a setting is wrong
    message.error = error.message;
    hooks.saved(conversations.save(conversation));
    return hooks.ended({ conversation, message });
  }
  for (const name of ["error", "stats"]) delete message[name];
  message.cut = true; // until it has ended: the page may be closed before
  const run = { conversation, message, controller: new AbortController(), pieces: 0, begun: 0 };
  run.whole = new Promise((resolve) => { run.end = resolve; });
  runs.set(conversation.id, run);
  hooks.saved(conversations.save(conversation));
  hooks.begun(run);
  let saved = performance.now();
  let again = null;
  try {
    for await (const chunk of client.chat(body, run.controller.signal)) {
      takeChunk(run, chunk);
      hooks.grew(run);
      if (performance.now() - saved < SAVE_MS) continue;
      hooks.saved(conversations.save(conversation));
      saved = performance.now();
    }
    message.stats = statsOf(run);
    if (!run.limited) delete message.cut;
  } catch (error) {
    const stopped = run.controller.signal.aborted;
    if (stopped) message.stats = "stopped";
    else message.error = error.message;
    if (run.pieces === 0 && !stopped) again = error;
    if (error instanceof client.Unreachable && run.pieces > 0) hooks.gone(error.message);
  }
  runs.delete(conversation.id);
  hooks.saved(conversations.save(conversation));
  run.end();
  hooks.ended(run);
  if (again === null) return;
  // Nothing of it was made: it is asked for again when there is a server or a key.
  const repeat = () => isThere(conversation, message) && answer(conversation, message, use);
  if (again instanceof client.Unreachable) hooks.gone(again.message, repeat);
  else if (again.status === 401 && await askKey(again.message)) await repeat();
}

// Ends the answer under way, if there is one.
export async function stop(conversation) {
  const run = runOf(conversation);
  if (!run) return;
  run.controller.abort();
  await run.whole;
}
