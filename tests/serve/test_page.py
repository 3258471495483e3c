"""The page to chat on, without a browser: its files, their headers, and what they refer to."""
import os
import re
import unittest

from common import CHAT_MODEL, PAGE, Server, ServerCase, page_files, read_all

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}
POLICY = {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self' data:", "connect-src": "'self'",
          "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
          "trusted-types": "'none'"}


def path_of(name):
    return "/" if name == "index.html" else "/page/" + name


def source(name):
    with open(os.path.join(PAGE, name), "rb") as file:
        return file.read()


class Files(ServerCase):
    def test_files_and_headers(self):
        for name in page_files():
            status, headers, data = self.server.ask("GET", path_of(name))
            self.assertEqual((status, data), (200, source(name)), name)
            self.assertEqual(headers["Content-Type"], TYPES[os.path.splitext(name)[1]])
            found = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
            self.assertEqual(found, POLICY)
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Referrer-Policy"], "no-referrer")
            self.assertEqual(headers["X-Frame-Options"], "DENY")
            self.assertEqual(headers["Cache-Control"], "no-cache")

    def test_known_files_are_not_sent_again(self):
        tags = set()
        for name in page_files():
            tag = self.server.ask("GET", path_of(name))[1]["ETag"]
            self.assertRegex(tag, r'^"\w+"$')
            tags.add(tag)
            for known in (tag, "W/" + tag, '"other" , ' + tag, "*"):
                status, headers, data = self.server.ask("GET", path_of(name), headers={"If-None-Match": known})
                self.assertEqual((status, data), (304, b""), known)
                self.assertEqual(headers["ETag"], tag)
                self.assertIn("Content-Security-Policy", headers)
                self.assertNotIn("Content-Length", headers)
            for known in ('"other"', tag.strip('"'), ""):
                self.assertEqual(self.server.ask("GET", path_of(name), headers={"If-None-Match": known})[0], 200, known)
        self.assertEqual(len(tags), len(page_files()))

    def test_a_connection_goes_on_behind_what_is_known(self):
        tag = self.server.ask("GET", "/")[1]["ETag"]
        head = "GET / HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: %s\r\n%s\r\n"
        answer = self.server.raw((head % (tag, "") + head % (tag, "Connection: close\r\n")).encode())
        self.assertEqual(answer.count(b"HTTP/1.1 304 Not Modified\r\n"), 2)

    def test_head(self):
        for name in page_files():
            with self.server.connect() as client:
                client.sendall(b"HEAD %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path_of(name).encode())
                head, _, body = read_all(client).partition(b"\r\n\r\n")
            self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
            self.assertIn(b"Content-Length: %d\r\n" % len(source(name)), head + b"\r\n")
            self.assertEqual(body, b"")

    def test_other_paths(self):
        for path in ("/page", "/page/", "/page/index.html", "/v1/", "/v1/page/app.js", "/page/app.js/", "/page//app.js",
                     "/page/page_files.h", "/index.html"):
            self.assertEqual(self.server.ask("GET", path)[0], 404, path)
        for path in ("/page/../page/app.js", "/page/%2e%2e/health", "/page/app.js%00", "/page/%5capp.js"):
            self.assertEqual(self.server.ask("GET", path)[0], 400, path)
        for method in ("POST", "PUT", "DELETE"):
            status, headers, _ = self.server.ask(method, "/")
            self.assertEqual((status, headers["Allow"]), (405, "GET"))
        self.assertEqual(self.server.ask("GET", "/page/%61pp.js?version=1")[0], 200)

    def test_a_foreign_name_sees_no_page(self):
        self.assertEqual(self.server.ask("GET", "/", headers={"Host": "evil.example"})[0], 403)


class Options(unittest.TestCase):
    def test_no_page(self):
        for option in ("--no-page", "--no-webui"):  # the second is llama-server's
            with Server(CHAT_MODEL, option) as server:
                for path in ("/", "/page/app.js"):
                    self.assertEqual(server.ask("GET", path)[0], 404, path)
                self.assertEqual(server.ask("GET", "/health")[0], 200)
        with Server(CHAT_MODEL, "--no-page", "--api-key", "secret") as server:
            self.assertEqual(server.ask("GET", "/")[0], 401)

    def test_the_page_needs_no_key(self):
        with Server(CHAT_MODEL, "--api-key", "secret") as server:
            for name in page_files():
                self.assertEqual(server.ask("GET", path_of(name))[0], 200)
            for path in ("/page/other.js", "/page", "/v1/models"):
                self.assertEqual(server.ask("GET", path)[0], 401, path)


class Sources(unittest.TestCase):
    """What the policy would make a browser refuse, and what would do nothing."""

    def text_of(self, *endings):
        return {name: source(name).decode() for name in page_files() if name.endswith(endings)}

    def test_nothing_foreign(self):
        for name, text in self.text_of("").items():
            text = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
            for address in re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]+", text):
                self.fail("%s names %s" % (name, address))
            self.assertNotRegex(text, r"@import|url\(", name)

    def test_no_way_from_text_to_markup(self):
        for name, text in self.text_of(".js").items():
            self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
                                      r"|createContextualFragment|setTimeout\([\"'`]|setAttribute\([\"'`](?:on|style|src|href)", name)
        for name, text in self.text_of(".html", ".svg").items():
            self.assertNotRegex(text, r"(?i)<style|\sstyle=|\son\w+=|javascript:|<script(?![^>]*\ssrc=)", name)

    def test_ids_and_files_exist(self):
        html = source("index.html").decode()
        ids = re.findall(r'\sid="([^"]+)"', html)
        self.assertEqual(len(ids), len(set(ids)))
        made = set(ids) | {"field-", "note-"}  # settings.js makes those
        for name, text in self.text_of(".js").items():
            for used in re.findall(r'(?:\$|getElementById)\("([^"]+)"', text):
                self.assertIn(used, made, name)
            for used in re.findall(r'from "\./([^"]+)"', text):
                self.assertIn(used, page_files(), name)
        for used in re.findall(r'(?:for|aria-labelledby|aria-describedby|aria-controls)="([^"]+)"', html):
            self.assertIn(used, ids)
        for used in re.findall(r'(?:src|href)="([^"#]+)"', html):
            self.assertIn(used.removeprefix("page/"), page_files())
        for used in re.findall(r"#([a-z][\w-]*)\b(?=[^{}]*\{)", self.text_of(".css")["style.css"]):
            self.assertIn(used, ids, "style.css")

    def test_sizes(self):
        for name, text in self.text_of("").items():
            self.assertLessEqual(len(text.splitlines()), 500, name)


if __name__ == "__main__":
    unittest.main()
