// Draws the Markdown that models write, by DOM nodes alone: nothing that a text says becomes HTML.
//
// A text that grows is drawn again block by block: blocks that did not change keep their nodes, so
// that what a reader has selected or opened stays.

const DEPTH_MAX = 12; // of lists, quotes and emphasis in each other; what is deeper stays plain
const LINK = /\[([^[\]]{1,500})\]\(\s*<?([^\s()<>]{1,2000}(?:\([^\s()<>]{0,500}\)[^\s()<>]{0,500})?)>?(?:\s+"[^"\n]{0,500}")?\s*\)/y;
const ADDRESS = /https?:\/\/[^\s<>"'`\]]{1,2000}/y;
const FENCE = /^ {0,3}(`{3,}|~{3,}) *([^`\s]{0,40})/;
const HEADING = /^ {0,3}(#{1,6}) +(.+)$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +)(?=\S)/;

export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

export async function copy(text, button) {
  const before = button.textContent;
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page without TLS from another machine has no clipboard
    const area = make("textarea", { value: text, className: "hidden" });
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

// ---- Inside a line -------------------------------------------------------------------------------

function link(text, target, depth) {
  let url = null;
  try {
    url = new URL(target);
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  const rel = "noopener noreferrer nofollow";
  return make("a", { href: url.href, target: "_blank", rel }, ...inline(text, depth + 1, false));
}

// Where a run of markers ends what one at `from` begins, -1: nowhere.
function closing(text, marker, from) {
  for (let at = text.indexOf(marker, from); at >= 0; at = text.indexOf(marker, at + 1)) {
    const after = text[at + marker.length] ?? " ";
    if (/\s/.test(text[at - 1]) || at === from) continue;
    if (marker.length === 1 && (after === marker || text[at - 1] === marker)) continue;
    if (marker[0] === "_" && /\w/.test(after)) continue;
    return at;
  }
  return -1;
}

const EMPHASIS = { "**": "strong", "__": "strong", "~~": "s", "*": "em", "_": "em" };

// The nodes of a text within a block.
export function inline(text, depth = 0, links = true) {
  if (depth > DEPTH_MAX) return [text];
  const out = [];
  const hopeless = new Set(); // markers that nothing ends behind this place
  let plain = "";
  const push = (node) => {
    if (plain) out.push(plain);
    plain = "";
    out.push(node);
  };
  const match = (pattern, at) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  for (let i = 0; i < text.length;) {
    const c = text[i];
    if (c === "\n") {
      push(make("br"));
      i += 1;
      continue;
    }
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
      continue;
    }
    if (c === "`") {
      const run = /`+/y;
      run.lastIndex = i;
      const ticks = run.exec(text)[0];
      let end = hopeless.has(ticks) ? -1 : text.indexOf(ticks, i + ticks.length);
      while (end >= 0 && text[end + ticks.length] === "`") {
        while (text[end] === "`") end += 1;
        end = text.indexOf(ticks, end);
      }
      if (end >= 0) {
        push(make("code", { textContent: text.slice(i + ticks.length, end).trim() }));
        i = end + ticks.length;
      } else {
        hopeless.add(ticks);
        plain += ticks;
        i += ticks.length;
      }
      continue;
    }
    if (links && (c === "[" || (c === "!" && text[i + 1] === "["))) {
      const found = match(LINK, c === "!" ? i + 1 : i);
      const node = found && link(found[1], found[2], depth); // an image, too, is only a link
      if (node) {
        push(node);
        i = LINK.lastIndex;
        continue;
      }
    }
    if (links && c === "h" && !/\w/.test(text[i - 1] ?? " ")) {
      const found = match(ADDRESS, i);
      const address = found && found[0].replace(/[.,;:!?)*_]{1,20}$/, "");
      const node = address && link(address, address, DEPTH_MAX);
      if (node) {
        push(node);
        i += address.length;
        continue;
      }
    }
    const marker = text.startsWith(c + c, i) ? c + c : c;
    const name = EMPHASIS[marker];
    const opens = name && /\S/.test(text[i + marker.length] ?? " ") &&
      !(c === "_" && /\w/.test(text[i - 1] ?? " "));
    if (opens && !hopeless.has(marker)) {
      const begin = i + marker.length;
      const end = closing(text, marker, begin);
      if (end > 0) {
        push(make(name, {}, ...inline(text.slice(begin, end), depth + 1, links)));
        i = end + marker.length;
        continue;
      }
      hopeless.add(marker);
    }
    plain += name ? marker : c;
    i += name ? marker.length : 1;
  }
  if (plain) out.push(plain);
  return out;
}

// ---- Blocks --------------------------------------------------------------------------------------

function isTable(lines, i) {
  const rule = lines[i + 1] ?? "";
  return lines[i].includes("|") && /^[ |:-]+$/.test(rule) && rule.includes("-") && rule.includes("|");
}

function beginsBlock(lines, i) {
  const line = lines[i];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
    ITEM.test(line) || isTable(lines, i);
}

// Cuts lines into blocks: [{kind, lines, ...}].
function blocksOf(lines) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    const begin = i;
    const fence = FENCE.exec(lines[i]);
    let kind = "text";
    i += 1;
    if (lines[begin].trim() === "") continue;
    if (fence) {
      kind = "code";
      const ends = (line) => line.trim().startsWith(fence[1]) && !line.trim().slice(fence[1].length)
        .replaceAll(fence[1][0], "");
      while (i < lines.length && !ends(lines[i])) i += 1;
      i += 1;
    } else if (HEADING.test(lines[begin])) {
      kind = "heading";
    } else if (RULE.test(lines[begin])) {
      kind = "rule";
    } else if (QUOTE.test(lines[begin])) {
      kind = "quote";
      while (i < lines.length && QUOTE.test(lines[i])) i += 1;
    } else if (ITEM.test(lines[begin])) {
      kind = "list";
      const ordered = /\d/.test(ITEM.exec(lines[begin])[2]);
      const indent = ITEM.exec(lines[begin])[1].length;
      for (; i < lines.length; i += 1) {
        const item = ITEM.exec(lines[i]);
        if (item && item[1].length <= indent && /\d/.test(item[2]) !== ordered) break;
        if (item) continue;
        const inside = /^\s/.test(lines[i]);
        if (lines[i].trim() === "") {
          const next = lines[i + 1] ?? "";
          if (!ITEM.test(next) && !/^ {2,}\S/.test(next)) break;
        } else if (!inside && (beginsBlock(lines, i) || lines[i - 1].trim() === "")) {
          break;
        }
      }
    } else if (isTable(lines, begin)) {
      kind = "table";
      while (i < lines.length && lines[i].includes("|")) i += 1;
    } else {
      while (i < lines.length && lines[i].trim() !== "" && !beginsBlock(lines, i)) i += 1;
    }
    blocks.push({ kind, lines: lines.slice(begin, i) });
  }
  return blocks;
}

function drawCode(lines) {
  const [, fence, language] = FENCE.exec(lines[0]);
  const closed = lines.length > 1 && lines.at(-1).trim().startsWith(fence);
  const text = lines.slice(1, closed ? -1 : undefined).join("\n");
  const button = make("button", { type: "button", textContent: "Copy" });
  button.setAttribute("aria-label", "Copy this code");
  button.addEventListener("click", () => copy(text, button));
  const code = make("pre", { tabIndex: 0 }, make("code", { textContent: text }));
  return make("div", { className: "code" },
    make("div", { className: "code-head" }, make("span", { textContent: language || "text" }), button), code);
}

function drawList(lines, depth) {
  const [, indent, marker] = ITEM.exec(lines[0]);
  const list = make(/\d/.test(marker) ? "ol" : "ul");
  if (list.localName === "ol") list.start = parseInt(marker, 10);
  let item = [];
  const flush = () => {
    const blocks = blocksOf(item);
    const short = blocks.length > 0 && blocks[0].kind === "text"; // no paragraph around its text
    list.append(make("li", {}, ...(short ? inline(blocks[0].lines.join("\n"), depth + 1) : []),
      ...blocks.slice(short ? 1 : 0).map((block) => drawBlock(block, depth + 1))));
  };
  let width = 0;
  for (const [number, line] of lines.entries()) {
    const found = ITEM.exec(line);
    if (found && found[1].length <= indent.length) {
      if (number > 0) flush();
      width = found[0].length;
      item = [line.slice(width)];
    } else {
      item.push(line.slice(Math.min(width, line.length - line.trimStart().length)));
    }
  }
  flush();
  return list;
}

function drawTable(lines, depth) {
  const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|");
  const row = (line, name) => make("tr", {},
    ...cells(line).map((cell) => make(name, {}, ...inline(cell.trim(), depth + 1))));
  return make("div", { className: "table", tabIndex: 0 }, make("table", {},
    make("thead", {}, row(lines[0], "th")),
    make("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

function drawBlock({ kind, lines }, depth) {
  const text = lines.join("\n");
  if (depth > DEPTH_MAX) return make("p", { textContent: text });
  switch (kind) {
    case "code": return drawCode(lines);
    case "list": return drawList(lines, depth);
    case "table": return drawTable(lines, depth);
    case "rule": return make("hr");
    case "heading": { // the page itself has the levels above
      const [, marks, title] = HEADING.exec(lines[0]);
      return make("h" + Math.min(marks.length + 3, 6), {}, ...inline(title, depth + 1));
    }
    case "quote": {
      const inner = blocksOf(lines.map((line) => line.replace(QUOTE, "")));
      return make("blockquote", {}, ...inner.map((block) => drawBlock(block, depth + 1)));
    }
    default: return make("p", {}, ...inline(text.trim(), depth + 1));
  }
}

// A text in an element, drawn anew where it differs.
export class Markdown {
  constructor(element) {
    this.element = element;
    this.drawn = [];
  }

  update(text) {
    const blocks = blocksOf(text.split("\n"));
    const keys = blocks.map(({ kind, lines }) => kind + "\n" + lines.join("\n"));
    let same = 0;
    while (same < keys.length && keys[same] === this.drawn[same]) same += 1;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    this.element.append(...blocks.slice(same).map((block) => drawBlock(block, 0)));
    this.drawn = keys;
  }
}
