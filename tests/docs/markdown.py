"""Reads a page of Markdown as far as the checks of documents need it: blocks, links, anchors and sentences."""
import re

FENCE = re.compile(r"\s*(```+|~~~+)\s*(.*)$")
HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*(?:\([^()]*\))?[^()\s]*)\)")
HTML_LINK = re.compile(r"<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)=\"([^\"]*)\"")
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
# A sentence ends at a mark that a blank and the beginning of another one follow; not behind these.
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|etc|approx|No|St|Dr|Mr)|\.\.)\.$")
SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+(?=[\"'(\[]*\w)")


class Block:
    """kind: heading, text, code, table or html. line: of its first line in the page, from 1. info: what stands behind a fence."""

    def __init__(self, kind, line, info=""):
        self.kind, self.line, self.info, self.lines = kind, line, info, []

    @property
    def language(self):
        return self.info.split()[0] if self.info else ""

    @property
    def shows_errors(self):
        """Whether its commands are meant to fail."""
        return "fails" in self.info.split()

    @property
    def text(self):
        return " ".join(line.strip() for line in self.lines)


class Page:
    def __init__(self, text):
        self.blocks = read_blocks(text.splitlines())

    def anchors(self):
        """As GitHub makes them of headings."""
        found = set()
        for block in self.blocks:
            if block.kind == "heading":
                anchor = anchor_of(block.text)
                name, number = anchor, 0
                while name in found:
                    number += 1
                    name = f"{anchor}-{number}"
                found.add(name)
        return found

    def links(self):
        """(line, target) of every link and picture outside of code."""
        for block in self.blocks:
            if block.kind == "code":
                continue
            for number, line in enumerate(block.lines):
                plain = SPAN.sub("`code`", line)
                for target in [*(found[2] for found in LINK.finditer(plain)), *HTML_LINK.findall(plain)]:
                    yield block.line + number, target

    def spans(self):
        """(line, text) of every piece of code within text."""
        for block in self.blocks:
            if block.kind != "code":
                for number, line in enumerate(block.lines):
                    for found in SPAN.finditer(line):
                        yield block.line + number, found[2].strip().replace("\\|", "|")

    def code(self):
        return [block for block in self.blocks if block.kind == "code"]

    def sentences(self):
        """(line of the paragraph, words) of every sentence; items of lists are sentences, tables and headings are not."""
        for block in self.blocks:
            if block.kind == "text":
                for sentence in sentences_of(block.text):
                    words = [word for word in sentence.split() if re.search(r"\w", word)]
                    if words:
                        yield block.line, words


def anchor_of(heading):
    heading = LINK.sub(r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def sentences_of(text):
    """A piece of code is a word, a link is its text."""
    text = SPAN.sub("code", text)
    text = LINK.sub(lambda found: "" if found[0].startswith("!") else found[1], text)
    text = re.sub(r"<[^>]+>|[*_]{2}|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)", "", text)
    start, found = 0, []
    for end in SENTENCE_END.finditer(text):
        before = text[start:end.end()].rstrip()
        following = text[end.end():].lstrip("\"'([")[:1]
        if ABBREVIATION.search(before.rstrip("\"')]")) and following.islower():
            continue
        found.append(before)
        start = end.end()
    found.append(text[start:])
    return [sentence.strip() for sentence in found if sentence.strip()]


def read_blocks(lines):
    blocks, current, fence = [], None, None
    for number, line in enumerate(lines, 1):
        found = FENCE.match(line)
        if fence is not None:
            if found and found[1].startswith(fence) and not found[2]:
                fence, current = None, None
            else:
                current.lines.append(line)
            continue
        if found:
            fence = found[1]
            current = Block("code", number + 1, found[2])
            blocks.append(current)
            continue
        kind = kind_of(line, current)
        if kind is None:
            current = None if current is None or current.kind != "code" else current
            if current is not None:
                current.lines.append("")
            continue
        starts = current is None or current.kind != kind or kind == "heading" or (kind == "text" and ITEM.match(line))
        if starts:
            current = Block(kind, number)
            blocks.append(current)
        if kind == "heading":
            current.lines.append(HEADING.match(line)[2])
        elif kind == "text":
            current.lines.append(ITEM.sub("", line.lstrip("> "), count=1) if starts else line.lstrip("> "))
        else:
            current.lines.append(line[4:] if kind == "code" else line)
    return blocks


def kind_of(line, current):
    """Of a line outside of fences; None for an empty one."""
    if not line.strip():
        return None
    in_text = current is not None and current.kind == "text"
    if line.startswith("    ") and not in_text:
        return "code"
    if HEADING.match(line):
        return "heading"
    if line.lstrip().startswith("|"):
        return "table"
    if re.match(r"\s*<(?!!--)/?[a-z]", line) and not in_text:
        return "html"
    if line.lstrip().startswith("<!--"):
        return "html"
    return "text"
