#!/usr/bin/env python3
"""Draws docs/page.png and docs/page-narrow.png: the page of `kvant serve` in Chromium, with likeliest answers of smollm2.

    draw_page.py PROGRAM

Needs chromium with chromedriver (`./dev test --page` installs them) and the model (`./dev models smollm2`). Answers are the same on
each machine with the same kernels; tokens per second are not.
"""
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "build/models/smollm2/smollm2.gguf"
ASKED = ["What makes bread rise? Answer in one sentence.", "Write a Python function that returns the n-th Fibonacci number, and explain it in a list."]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    os.environ["KVANT_PROGRAM"] = os.path.abspath(sys.argv[1])
    sys.path.insert(0, str(ROOT / "tests/serve"))
    from browser import Browser
    from common import Server

    with Server(str(MODEL), "-c", "4096", "--temp", "0", "--predict", "400", threads=os.cpu_count()) as server:
        browser = Browser()
        try:
            browser.size(1000, 660)
            browser.open(server.url + "/")
            browser.wait("document.querySelector('#facts').textContent")
            for text in ASKED:
                browser.press("Alt", "n")
                browser.type("#input", text)
                browser.press("Enter")
                browser.wait("document.querySelector('.assistant .stats')?.textContent")
            browser.press("Alt", "r")
            browser.wait("document.querySelector('.branches') && document.querySelector('.assistant .stats')?.textContent")
            browser.js("document.activeElement.blur()")
            for width, height, scheme, top, name in ((1000, 660, "light", 1e6, "page.png"), (360, 660, "dark", 0, "page-narrow.png")):
                browser.size(width, height)
                browser.colors(scheme)
                browser.js("document.querySelector('#scroll').scrollTop = arguments[0]", top)
                browser.picture(str(ROOT / "docs" / name))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
