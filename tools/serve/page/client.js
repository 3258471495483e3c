// Talks to the server that the page comes from.
import { read, write } from "./storage.js";

export class ServerError extends Error { // the server's own message
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export class Unreachable extends Error {}

const KEY = "kvant.key";

// The key stays until the tab is closed.
let key = read("session", KEY) ?? "";
export function saveKey(text) {
  key = text;
  write("session", KEY, text || null);
}

async function ask(path, body, signal) {
  const headers = new Headers();
  if (body) headers.set("Content-Type", "application/json");
  try {
    if (key) headers.set("Authorization", "Bearer " + key);
  } catch {
    throw new ServerError("the API key has characters that no header may have", 401);
  }
  let answer = null;
  try {
    const method = body ? "POST" : "GET";
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw signal?.aborted ? error : new Unreachable("the server does not answer");
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let message = text || `${answer.status} ${answer.statusText}`;
  try {
    message = JSON.parse(text).error.message ?? message;
  } catch { /* a proxy's page: its text is all there is */ }
  throw new ServerError(String(message), answer.status);
}

export async function get(path) {
  return (await ask(path)).json();
}

// The chunks of an answer, as the server sends them.
export async function* chat(body, signal) {
  const answer = await ask("v1/chat/completions", { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    let piece = null;
    try {
      piece = await reader.read();
    } catch (error) {
      throw signal.aborted ? error : new Unreachable("the connection was lost");
    }
    if (piece.done) throw new Unreachable("the connection ended before the answer did");
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice("data:".length).trim();
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ServerError(String(chunk.error.message), chunk.error.code);
      yield chunk;
    }
  }
}
