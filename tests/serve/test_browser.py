"""The page to chat on, in Chromium: what a reader does with it, and what nobody may do to a reader."""
import json
import os
import time
import unittest

from browser import BrowserCase, ScriptedServer, deltas
from common import Server

# Markup that would tell if it were ever more than text.
EVIL = "<img src=x onerror=\"caught.push('evil')\"><script>caught.push('evil')</script>"
ENDLESS = json.dumps({"type": "string", "minLength": 100000})


class Chat(BrowserCase):
    @classmethod
    def make_server(cls):
        return Server("dialogue", "--parallel", "4", "-c", "200000", "--alias", EVIL)

    def begin_endless(self):
        self.set("#schema", ENDLESS)
        self.send("Hello")
        self.browser.wait("document.querySelector('.assistant .text').textContent.length > 20")

    def test_an_answer_is_that_of_the_server(self):
        self.set("#field-temperature", "0")
        self.set("#system", "You answer in one word.")
        answer = self.talk("What is 2 + 3?")
        body = {"temperature": 0, "messages": [{"role": "system", "content": "You answer in one word."},
                                               {"role": "user", "content": "What is 2 + 3?"}]}
        expected = self.server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        self.assertEqual(answer, expected.strip())
        self.assertRegex(self.browser.texts(".stats")[-1],
                         r"^\d+ tokens?( · [\d.]+ tokens/s)? · prompt of \d+ tokens, \d+ from the cache · \d+ % of the context$")
        self.assertEqual(self.browser.texts("#status"), [answer])

    def test_it_streams_and_stops(self):
        """A text that is stopped frees its sequence, and what it said stays."""
        self.begin_endless()
        lengths = {self.browser.js("return document.querySelector('.assistant .text').textContent.length") for _ in range(20)}
        self.assertGreater(len(lengths), 1)
        self.assertEqual(self.server.metrics()["llamacpp:requests_processing"], 1)
        self.browser.press("Escape")
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 0)
        self.wait_for_end()
        self.assertEqual(self.browser.texts(".assistant .stats"), ["stopped"])
        stopped = self.messages()[1]
        self.assertGreater(len(stopped), 20)
        self.begin_again_by_button()
        self.assertTrue(self.messages()[1].startswith(stopped))

    def begin_again_by_button(self):
        """An answer that was cut goes on, and is stopped with the button."""
        self.set("#field-max_tokens", "3")  # the schema keeps the text from ending by itself
        self.act(1, "on")
        self.wait_for_end()
        self.set("#field-max_tokens", "")
        self.set("#schema", ENDLESS)
        self.act(1, "again")
        self.browser.wait("document.querySelector('.assistant .text').textContent.length > 20")
        self.browser.click("#stop")
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 0)
        self.wait_for_end()
        self.act(1, "before")

    def test_conversations_answer_side_by_side(self):
        self.begin_endless()
        self.browser.press("Alt", "n")
        self.set("#schema", "")
        self.talk("What is 1 + 1?")
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
        self.assertEqual(len(self.browser.texts("#conversations li")), 2)
        self.assertEqual(len(self.browser.texts("#conversations .busy")), 1)
        self.browser.click("#conversations li:has(.busy) .opens")
        before = len(self.messages()[1])
        self.browser.wait("document.querySelector('.assistant .text').textContent.length > arguments[0]", before)
        self.browser.press("Escape")
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 0)
        self.wait_for_end()

    def test_branches(self):
        self.talk("What is 2 + 3?")
        first = self.talk("And 4 + 5?")
        self.act(3, "again")
        self.wait_for_end()
        second = self.messages()[3]
        self.assertEqual(self.branch(3), "‹2/2›")
        self.act(3, "before")
        self.assertEqual((self.branch(3), self.messages()[3]), ("‹1/2›", first))
        # A change of the first message has a conversation of its own behind it.
        self.act(0, "edit")
        self.set(".user textarea", "Spell the word cat.")
        self.act(0, "send-edit")
        self.browser.wait("document.querySelectorAll('.message').length === 2")
        self.wait_for_end()
        self.assertEqual((self.branch(0), self.messages()[0]), ("‹2/2›", "Spell the word cat."))
        self.act(0, "before")
        self.assertEqual([self.messages()[i] for i in (0, 2, 3)], ["What is 2 + 3?", "And 4 + 5?", first])
        self.act(3, "after")
        self.assertEqual(self.messages()[3], second)
        # All of it is still there afterwards.
        self.browser.open(self.server.url + "/")
        self.browser.wait("document.querySelectorAll('.message').length === 4")
        self.assertEqual([self.branch(i) for i in range(4)], ["‹1/2›", "", "", "‹2/2›"])
        self.assertEqual(self.messages()[3], second)

    def test_a_page_that_is_closed_in_an_answer(self):
        """What was said is there again, and can be gone on with."""
        self.begin_endless()
        self.browser.open(self.server.url + "/")
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 0)
        said = self.messages()[1]
        self.assertGreater(len(said), 20)
        self.set("#field-max_tokens", "3")  # the schema keeps the text from ending by itself
        self.act(1, "on")
        self.wait_for_end()
        self.assertTrue(self.messages()[1].startswith(said))
        self.assertIn("cut at the limit of tokens", self.browser.texts(".stats")[1])

    def test_an_edit_can_be_left(self):
        self.talk("What is 2 + 3?")
        self.act(0, "edit")
        self.browser.write("x")
        self.browser.press("Escape")
        self.assertEqual((self.messages()[0], self.branch(0)), ("What is 2 + 3?", ""))

    def test_undo(self):
        self.talk("What is 2 + 3?")
        self.talk("And 4 + 5?")
        self.browser.click("#undo")
        self.assertEqual(len(self.messages()), 2)
        self.assertEqual(self.browser.js("return document.querySelector('#input').value"), "And 4 + 5?")
        self.browser.press("Alt", "u")
        self.browser.wait("document.querySelectorAll('.message').length === 0")
        self.browser.open(self.server.url + "/")
        self.assertEqual(self.messages(), [])

    def test_the_cache_knows_a_conversation(self):
        self.talk("Tell me a long story about a cat, a dog, a house, a garden, the sea, a ship, the sun, the moon, a king and a queen.")
        self.talk("And then?")
        cached = int(self.browser.texts(".stats")[-1].split(" tokens, ")[1].split(" from")[0])
        self.assertGreater(cached, 0)

    def test_settings_are_checked_and_kept(self):
        self.browser.press("Alt", "s")
        for selector, text in (("#field-temperature", "2"), ("#field-max_tokens", "20")):
            self.browser.type(selector, text)
        self.browser.type("#schema", "{")
        self.assertIn("This is no schema", self.browser.texts("#schema-note")[0])
        self.browser.press("Escape")
        self.talk("Hello")
        self.assertIn("JSON schema", self.browser.texts(".error")[1])
        self.set("#schema", '{"const": null}')
        self.act(1, "again")
        self.wait_for_end()
        self.assertEqual(self.messages()[1], "null")
        self.browser.open(self.server.url + "/")
        self.assertEqual(self.browser.js("return document.querySelector('#field-temperature').value"), "2")
        self.assertEqual(self.browser.js("return document.querySelector('#schema').value"), '{"const": null}')
        self.assertRegex(self.browser.wait("document.querySelector('#note-temperature').textContent"), r"^server: \d")
        # A value that the server refuses: its words are shown.
        self.set("#field-repeat_penalty", "0")
        self.talk("Hello")
        status, _, error = self.server.ask("POST", "/v1/chat/completions",
                                           {"messages": [{"role": "user", "content": "a"}], "repeat_penalty": 0})
        self.assertEqual(status, 400)
        self.assertEqual(self.browser.texts(".error")[-2:][0], error["error"]["message"])

    def test_markup_stays_text(self):
        """In messages, answers, names of models, titles, schemas, thoughts and imported files."""
        self.set("#schema", json.dumps({"const": EVIL}))
        answer = self.talk(EVIL)
        self.assertEqual(self.messages()[0], EVIL)
        self.assertEqual(json.loads(answer), EVIL)
        self.assertEqual(self.browser.texts("#model-name"), [EVIL])
        self.assertIn(EVIL, self.browser.texts("#facts")[0])
        self.assertEqual(self.browser.texts("#title"), [EVIL[:59] + "…"])
        self.set("#schema", json.dumps({"const": "[a](javascript:caught.push(1)) [b](data:text/html,x) ![c](https://evil.example/c.png)"}))
        self.talk("Links")
        links = self.browser.js("return [...document.querySelectorAll('.text a')].map((a) => [a.href, a.rel, a.target, a.textContent])")
        self.assertEqual(links, [["https://evil.example/c.png", "noopener noreferrer nofollow", "_blank", "c"]])
        message = {"id": 1, "parent": 0, "role": "assistant", "content": EVIL, "reasoning": EVIL, "error": EVIL, "stats": EVIL,
                   "calls": [{"name": EVIL, "arguments": EVIL}], "shown": 0}
        self.take({"format": "kvant conversations", "version": 1, "conversations": [
            {"id": "evil", "title": EVIL, "messages": [message], "system": EVIL}]})
        self.browser.js("[...document.querySelectorAll('.opens')].find((one) => one.title.startsWith('<img') && one.title.length > 60).click()")
        self.browser.wait("document.querySelector('.assistant .error').textContent === arguments[0]", EVIL)
        self.assertEqual(self.browser.texts("main img, main script, dialog img, nav li img"), [])

    def take(self, value):
        path = os.path.join(self.browser.folder, EVIL[:9].strip("<") + ".json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
        self.browser.type("#file", path)
        note = self.browser.wait("document.querySelector('#question[open] #question-note')?.textContent")
        self.browser.click("#question-yes")
        return note

    def test_files_of_conversations(self):
        self.talk("What is 2 + 3?")
        self.browser.click("#export")
        end = time.monotonic() + 60
        while not (os.path.isdir(self.browser.downloads) and any(n.endswith(".json") for n in os.listdir(self.browser.downloads))):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        name, = os.listdir(self.browser.downloads)
        with open(os.path.join(self.browser.downloads, name), encoding="utf-8") as file:
            saved = json.load(file)
        os.unlink(os.path.join(self.browser.downloads, name))
        self.assertEqual([one["content"] for one in saved["conversations"][0]["messages"]], self.messages())
        self.open(self.server.url)
        self.assertEqual(self.browser.texts("#conversations li"), [])
        self.assertIn("1 conversation taken", self.take(saved))
        self.browser.click(".opens")
        self.assertEqual(self.messages(), [one["content"] for one in saved["conversations"][0]["messages"]])
        for wrong, place in (("{", "JSON"), ({"format": "x"}, "format"), ({**saved, "version": 2}, "version"),
                             ({**saved, "conversations": [{**saved["conversations"][0], "messages": [{"id": "1"}]}]},
                              "conversations[0].messages[0].id"),
                             ({**saved, "conversations": [{**saved["conversations"][0], "id": "../x"}]}, "conversations[0].id")):
            self.assertIn(place, self.take(wrong))
        self.assertEqual(len(self.browser.texts("#conversations li")), 1)

    def test_list_of_conversations(self):
        self.talk("What is 2 + 3?")
        self.browser.click("[aria-label^='Rename']")
        self.browser.wait("document.querySelector('#question[open]')")
        self.browser.press("Control", "a")
        self.browser.write("Sums")
        self.browser.press("Enter")
        self.browser.wait("document.querySelector('.opens').textContent === 'Sums'")
        self.browser.click("[aria-label^='Delete']")
        self.browser.wait("document.querySelector('#question[open]')")
        self.browser.press("Escape")
        self.assertEqual(len(self.browser.texts("#conversations li")), 1)
        self.browser.click("[aria-label^='Delete']")
        self.browser.click("#question-yes")
        self.browser.wait("document.querySelectorAll('#conversations li').length === 0")
        self.assertEqual(self.browser.js("return Object.keys(localStorage).filter((key) => key.includes('conversation'))"), [])

    # ---- Sizes, colours, keys ----

    def check_width(self):
        width, room = self.browser.js("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(width, room)
        wide = self.browser.js("return [...document.querySelectorAll('main *:not(pre *, table *, .hidden), dialog[open] *')]"
                               ".filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML)")
        self.assertEqual(wide, [])

    def test_narrow_and_large(self):
        content = "\n".join(["# A heading that is long enough for two lines", "", "w" * 300, "", "```", "x" * 300, "```", "",
                             "| a | b |", "| --- | --- |", "| " + "cell " * 60 + " | `" + "c" * 80 + "` |", "", "- item\n  - " + "i" * 90])
        self.set("#schema", json.dumps({"const": 1}))
        self.talk("u" * 300)
        self.take({"format": "kvant conversations", "version": 1, "conversations": [
            {"id": "wide", "title": "t" * 90, "messages": [
                {"id": 1, "parent": 0, "role": "user", "content": "v" * 200},
                {"id": 2, "parent": 1, "role": "assistant", "content": content, "reasoning": "r" * 200, "error": "e" * 200}]}]})
        for font in ("100%", "200%"):
            self.browser.size(360, 700)
            self.browser.js("document.documentElement.style.fontSize = arguments[0]", font)
            self.check_width()
            self.browser.click("#menu")
            self.check_width()
            self.browser.js("[...document.querySelectorAll('.opens')].find((one) => one.title.startsWith('ttt')).click()")
            self.check_width()
            for keys in ("s", "k"):
                self.browser.press("Alt", keys)
                self.browser.wait("document.querySelector('dialog[open]')")
                self.check_width()
                self.browser.press("Escape")

    def test_light_and_dark(self):
        """Every text has a contrast of 4.5 to what is behind it (WCAG 2, AA)."""
        contrast = """
        const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const behind = (one) => { for (; one; one = one.parentElement) {
          const c = rgb(getComputedStyle(one).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
        const out = [];
        for (const one of document.querySelectorAll('body *')) {
          if (![...one.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !one.checkVisibility() || one.disabled) continue;
          const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
          out.push([(a + 0.05) / (b + 0.05), one.textContent.trim().slice(0, 30)]);
        }
        return out"""
        self.talk("What is 2 + 3?")
        self.set("#schema", "{")
        self.talk("Wrong")
        grounds = []
        for scheme in ("light", "dark"):
            self.browser.colors(scheme)
            for dialog in ("", "settings", "keys"):
                if dialog:
                    self.browser.js("document.getElementById(arguments[0]).showModal()", dialog)
                found = self.browser.js(contrast)
                self.assertGreater(len(found), 10)
                self.assertEqual([one for one in found if one[0] < 4.5], [], scheme)
                if dialog:
                    self.browser.press("Escape")
            grounds.append(self.browser.js("return getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*grounds)

    def test_keyboard_alone(self):
        self.assertEqual(self.browser.js("return document.activeElement.id"), "input")
        self.browser.write("What is 2 + 3?")
        self.browser.press("Shift", "Enter")
        self.browser.write("Say it.")
        self.browser.press("Enter")
        self.browser.wait("document.querySelectorAll('.message').length === 2")
        self.wait_for_end()
        self.assertEqual(self.messages()[0], "What is 2 + 3?\nSay it.")
        self.browser.press("Alt", "r")
        self.browser.wait("document.querySelectorAll('.message')[1].querySelector('.branches')")
        self.wait_for_end()
        self.browser.press("Alt", ",")
        self.assertEqual(self.branch(1), "‹1/2›")
        self.browser.press("Alt", ".")
        self.assertEqual(self.branch(1), "‹2/2›")
        self.browser.js("document.querySelector('#input').focus()")
        self.browser.press("ArrowUp")
        self.browser.wait("document.activeElement.matches('.user textarea')")
        self.browser.write(" Now.")
        self.browser.press("Enter")
        self.browser.wait("document.querySelectorAll('.message')[0].querySelector('.branches')")
        self.wait_for_end()
        self.assertTrue(self.messages()[0].endswith(" Now."))
        self.browser.press("Alt", "k")
        self.browser.wait("document.querySelector('#keys[open]')")
        self.browser.press("Escape")
        self.browser.wait("!document.querySelector('dialog[open]')")
        # Tab reaches every button that is to be seen, in the order of the page, and shows where it is.
        self.browser.js("document.querySelector('.skip').focus()")
        reached = []
        for _ in range(60):
            self.browser.press("Tab")
            reached.append(self.browser.js("const one = document.activeElement; window.order ??= [...document.querySelectorAll('*')];"
                                           "return [order.indexOf(one), one.id || one.dataset.name || one.className || one.localName,"
                                           "getComputedStyle(one).outlineStyle !== 'none' || one.id === 'input']"))
            if reached[-1][1] == "send":
                break
        self.assertEqual([one[0] for one in reached], sorted(one[0] for one in reached))
        self.assertLessEqual({"new", "opens", "import", "export", "undo", "open-settings", "open-keys", "copy", "edit", "again", "input",
                              "send"}, {one[1] for one in reached})
        self.assertEqual([one for one in reached if not one[2]], [])

    def test_names_for_screen_readers(self):
        self.talk("What is 2 + 3?")
        self.act(1, "again")
        self.wait_for_end()
        self.browser.js("[...document.querySelectorAll('button, input, textarea, select, nav, ol, dialog')]"
                        ".forEach((one, i) => one.setAttribute('data-number', i))")
        count = self.browser.js("return document.querySelectorAll('[data-number]').length")
        for dialog in ("", "settings", "keys"):
            if dialog:
                self.browser.js("document.getElementById(arguments[0]).showModal()", dialog)
            for i in range(count):
                selector = "[data-number='%d']" % i
                shown = "const one = document.querySelector(arguments[0]); return one.checkVisibility() && (!arguments[1] || one.closest('dialog'))"
                if self.browser.js(shown, selector, dialog):
                    self.assertTrue(self.browser.label(selector), self.browser.js("return document.querySelector(arguments[0]).outerHTML", selector))
            if dialog:
                self.browser.js("document.getElementById(arguments[0]).close()", dialog)
        self.assertEqual(self.browser.js("const one = document.querySelector('#status'); return one.getAttribute('aria-live')"), "polite")


class Scripted(BrowserCase):
    """What models and servers may say, by a server that says it."""

    @classmethod
    def make_server(cls):
        with Server() as server:
            return ScriptedServer(server, ("first", EVIL))

    def setUp(self):
        super().setUp()
        self.server.bodies.clear()

    def test_thoughts_and_calls(self):
        self.server.answers = [deltas(
            {"role": "assistant", "content": ""}, {"reasoning_content": "I *think* "}, {"reasoning_content": EVIL}, {"content": "Yes."},
            {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "look", "arguments": ""}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"at": '}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '"%s"}' % EVIL}}]}, finish="tool_calls")]
        self.assertEqual(self.talk("Hello"), "Yes.")
        self.assertEqual(self.browser.texts(".assistant .thoughts > div"), ["I think " + EVIL])
        self.assertFalse(self.browser.js("return document.querySelector('.assistant .thoughts').open"))
        self.assertEqual(self.browser.texts(".assistant .calls .code"), ["calls look" + '{"at": "%s"}' % EVIL])
        self.server.answers = [deltas({"content": "Good."})]
        self.talk("And?")
        self.assertEqual(self.server.bodies[-1]["messages"], [
            {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes.", "reasoning_content": "I *think* " + EVIL},
            {"role": "user", "content": "And?"}])

    def test_fields_of_a_request(self):
        self.assertEqual(self.browser.js("return [...document.querySelector('#model').options].map((one) => one.text)"), ["first", EVIL])
        self.browser.js("const model = document.querySelector('#model'); model.value = arguments[0]; model.dispatchEvent(new Event('change'))", EVIL)
        values = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repeat_penalty": 1.1, "seed": 3, "max_tokens": 9}
        for name, value in values.items():
            self.set("#field-" + name, str(value))
        self.set("#effort", "low")
        self.set("#schema", '{"type": "object"}')
        self.set("#system", "Be kind.")
        self.server.answers = [deltas({"content": "{}"})]
        self.talk("Hello")
        self.assertEqual(self.server.bodies[-1], {
            "model": EVIL, "stream": True, "stream_options": {"include_usage": True}, "reasoning_effort": "low",
            "json_schema": {"type": "object"}, **values,
            "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]})
        self.browser.press("Alt", "s")
        self.browser.click("#clear-settings")
        self.browser.press("Escape")
        self.server.answers = [deltas({"content": "{}"})]
        self.talk("Again")
        self.assertEqual(set(self.server.bodies[-1]), {"model", "stream", "stream_options", "messages"})

    def test_errors_are_shown_as_they_are(self):
        error = {"error": {"message": "the queue is full " + EVIL, "type": "x", "param": None, "code": None}}
        self.server.answers = [(429, error), [*deltas({"content": "Half"})[:1], error], deltas({"content": "Whole"})]
        self.talk("Hello")
        self.assertEqual(self.browser.texts(".assistant .error"), ["the queue is full " + EVIL])
        self.act(1, "again")
        self.wait_for_end()
        self.assertEqual(self.browser.texts(".assistant .error"), ["the queue is full " + EVIL])
        self.assertEqual(self.messages()[1], "Half")
        self.act(1, "again")
        self.wait_for_end()
        self.assertEqual((self.messages()[1], self.branch(1)), ("Whole", "‹2/2›"))

    def test_a_key_that_no_longer_holds(self):
        """It is asked for, and the message that wanted it is answered."""
        self.server.answers = [(401, {"error": {"message": "the API key is wrong"}}), deltas({"content": "There."})]
        self.send("Hello")
        self.assertEqual(self.browser.wait("document.querySelector('#question[open] #question-note')?.textContent"), "the API key is wrong")
        self.browser.write("other")
        self.browser.press("Enter")
        self.browser.wait("document.querySelectorAll('.text')[1]?.textContent === 'There.'")

    def test_a_connection_that_breaks(self):
        """A part of an answer stays and can be gone on with; nothing of one is asked for again."""
        self.server.answers = [[*deltas({"content": "Half "})[:1], 0.2, ConnectionError()], deltas({"content": "and whole."})]
        self.talk("Hello")
        self.assertEqual(self.messages()[1], "Half ".strip())
        self.assertIn("the connection ended before the answer did", self.browser.texts(".error")[1])
        self.act(1, "on")
        self.wait_for_end()
        self.assertEqual(self.messages()[1], "Half and whole.")
        self.assertEqual(self.server.bodies[-1]["messages"][-1], {"role": "assistant", "content": "Half "})
        self.browser.wait("document.querySelector('#banner').hidden")
        self.server.answers = [[ConnectionError()], deltas({"content": "There."})]
        self.send("And?")
        self.browser.wait("document.querySelector('#banner').textContent.includes('Trying again')")
        self.browser.wait("document.querySelectorAll('.text')[3]?.textContent === 'There.'")
        self.assertEqual(self.browser.texts("#messages .text"), ["Hello", "Half and whole.", "And?", "There."])

    def test_markdown(self):
        text = "\n".join([
            "# Title", "", "A **bold** and *leaning* word, __strong__, _em_, `a*b*c`, ~~gone~~, snake_case_name, 2 * 3 * 4.", "",
            "1. one", "2. two", "   - inner", "   - more", "", "> quoted", "", "```python", "print('<b>')", "", "# no title", "```", "",
            "| a | b |", "|---|---|", "| 1 | **2** |", "", "---", "", "See [the page](https://example.org/a_(b)) or https://example.org/c_d.",
            "**not closed", "", "```", "open"])
        self.server.answers = [deltas(*({"content": c} for c in text))]
        self.talk("Hello")
        shape = """
        const name = (one) => one.localName + (one.className ? '.' + one.className : '');
        const walk = (one) => one.nodeType === 3 ? one.data : [name(one), ...[...one.childNodes].map(walk)];
        return [...document.querySelectorAll('.assistant .text > *')].map(walk)"""
        link = "https://example.org/a_(b)"
        self.assertEqual(self.browser.js(shape), [
            ["h4", "Title"],
            ["p", "A ", ["strong", "bold"], " and ", ["em", "leaning"], " word, ", ["strong", "strong"], ", ", ["em", "em"], ", ",
             ["code", "a*b*c"], ", ", ["s", "gone"], ", snake_case_name, 2 * 3 * 4."],
            ["ol", ["li", "one"], ["li", "two", ["ul", ["li", "inner"], ["li", "more"]]]],
            ["blockquote", ["p", "quoted"]],
            ["div.code", ["div.code-head", ["span", "python"], ["button", "Copy"]], ["pre", ["code", "print('<b>')\n\n# no title"]]],
            ["div.table", ["table", ["thead", ["tr", ["th", "a"], ["th", "b"]]], ["tbody", ["tr", ["td", "1"], ["td", ["strong", "2"]]]]]],
            ["hr"],
            ["p", "See ", ["a", "the page"], " or ", ["a", "https://example.org/c_d"], ".", ["br"], "**not closed"],
            ["div.code", ["div.code-head", ["span", "text"], ["button", "Copy"]], ["pre", ["code", "open"]]]])
        self.assertEqual(self.browser.js("return document.querySelector('.text a').href"), link)
        # Texts made to be slow to read are read quickly, and none is lost.
        for piece in ("*a ", "_a ", "`" * 3 + "a ", "[a](", "[" * 50, "> " * 50, "- " * 50, "**a__b~~", "|-", "\\", "<a href=", "1. \n", "#" * 9):
            body = piece * (20000 // len(piece))
            self.server.answers = [deltas({"content": body})]
            self.browser.press("Alt", "n")
            self.talk("Hello")


class Away(BrowserCase):
    def test_keys(self):
        with Server("dialogue", "--api-key", "secret") as server:
            self.browser.open(server.url + "/")
            self.browser.wait("document.querySelector('#question[open]')")
            self.assertIn("expected an API key", self.browser.texts("#question-note")[0])
            self.browser.write("wrong")
            self.browser.press("Enter")
            self.browser.wait("document.querySelector('#question[open]') && document.querySelector('#question-note').textContent.includes('wrong')")
            self.browser.write("secret")
            self.browser.press("Enter")
            self.browser.wait("document.querySelector('#facts').textContent")
            self.assertTrue(self.talk("What is 2 + 3?"))
            self.assertEqual(self.browser.js("return Object.entries(localStorage).flat().filter((one) => one.includes('secret'))"), [])
            self.browser.open(server.url + "/")
            self.browser.wait("document.querySelector('#facts').textContent")
            self.assertTrue(self.talk("What is 2 + 3?"))

    def test_a_server_that_is_gone(self):
        server = Server("dialogue")
        try:
            self.open(server.url)
            self.talk("What is 2 + 3?")
            port = server.port
            server.close()
            self.send("And 4 + 5?")
            self.browser.wait("document.querySelector('#banner').textContent.includes('does not answer')")
            server = Server("dialogue", "--port", str(port))
            self.browser.wait("document.querySelector('#banner').hidden && document.querySelectorAll('.text')[3]?.textContent")
            self.wait_for_end()
            self.assertEqual(self.messages()[2], "And 4 + 5?")
            self.assertEqual(len(self.messages()), 4)
            self.assertEqual([one for one in self.browser.texts(".error") if one], [])
        finally:
            server.close()


if __name__ == "__main__":
    unittest.main()
