"""Every check of documents on pages that are wrong, and on one that is right. A script stands in the program's place."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True  # no folder of it in the source tree
sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_docs
import markdown

PROGRAM = r"""#!/usr/bin/env bash
case "$*" in
  --help) printf 'kvant runs.\n\nUsage: kvant COMMAND\n\nCommands\n  run         Write a text\n  say         Say what is said\n\nEnvironment\n  KVANT_X     What to say\n' ;;
  "run --help-all") printf 'Usage: kvant run MODEL\n\nWrites.\n\nPrompt\n  -p, --prompt TEXT           The prompt\n  -n, --predict N             Tokens\n' ;;
  "say --help-all") printf 'Usage: kvant say WORD\n\nSays.\n' ;;
  --version) printf 'kvant 1\ninstruction sets  a, b (not on this CPU), c\n' ;;
  "say isa") echo "$KVANT_ISA" ;;
  "say two") echo one; echo two ;;
  "say time") echo "12.5 tokens/s   of  7" ;;
  "say bound") echo "| 4 % memory |" ;;
  "say error") echo "kvant: error: no" >&2; exit 1 ;;
  "say file") echo text >file; echo written ;;
  "say again") cat file ;;
esac
"""
DEV = "#!/usr/bin/env bash\nprintf 'usage\\n\\n  build [X]   builds\\n  run [ARGS]  runs\\n'\n"
GOOD = """# A page

It is *short*. See [below](#the-end), [there](docs/other.md#a-heading) and `base/file.h`.

```console
$ kvant say two
one
two
$ kvant say file && \\
  kvant say again
...
text
```

```console figures
$ kvant say time
8 tokens/s of 19.25
```

```console fails
$ kvant say error
kvant: error: no
```

```sh
./dev build release
echo text | kvant run model.gguf -p "a | -x" --predict=3 > out   # kvant run --nothing
```

```python
import kvant
```

| A table has no sentences | """ + "word " * 50 + """|
| --- | --- |

## The end
"""


class CheckDocs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.program = self.root / "bin" / "kvant"
        self.write("bin/kvant", PROGRAM, executable=True)
        self.write("dev", DEV, executable=True)
        self.write("base/file.h", "")
        self.write("docs/other.md", "# Other\n\n## A `heading`\n\nText.\n")
        self.write("README.md", GOOD)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text, executable=False):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if executable:
            os.chmod(path, 0o755)

    def check(self, *arguments):
        run = subprocess.run([sys.executable, check_docs.__file__, str(self.program), "--root", str(self.root), *arguments],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
        return run.returncode, run.stdout

    def expect(self, page, *problems, name="docs/page.md", arguments=()):
        """The page has these problems and no other."""
        self.write(name, page)
        code, out = self.check(*arguments)
        self.assertEqual(code, 1, out)
        for problem in problems:
            self.assertIn(problem, out)
        self.assertIn(f"{len(problems)} problems", out)

    def test_a_good_page(self):
        code, out = self.check()
        self.assertEqual(code, 0, out)
        self.assertIn("README.md: ", out)
        self.assertIn("2 sentences of 4.0 words on average, 5 at most", out)
        self.assertIn("no problems", out)

    def test_links(self):
        self.expect("[a](nowhere.md) [b](other.md#no-heading) [c](/README.md) ![d](no.svg) [e](#no)\n",
                    "docs/page.md:1: the link nowhere.md leads nowhere", "other.md#no-heading leads to no heading", "/README.md is an absolute path",
                    "the link no.svg leads nowhere", "the link #no leads to no heading")
        self.expect("Text\n\n<img src=\"no.svg\" width=\"9\">\n", "docs/page.md:3: the link no.svg leads nowhere")
        self.expect("[out](../../other.md)\n", "../../other.md leads")

    def test_links_in_code_are_none(self):
        self.write("docs/page.md", "`[a](nowhere.md)`\n\n```text\n[b](nowhere.md)\n```\n")
        self.assertEqual(self.check()[0], 0)

    def test_sizes(self):
        self.expect("Word. " * 1536 + "\n", "README.md:1: the page has 9217 bytes, expected at most 9216", name="README.md")

    def test_the_readme_is_there(self):
        (self.root / "README.md").unlink()
        code, out = self.check()
        self.assertEqual(code, 1)
        self.assertIn("there is no README.md", out)

    def test_sentences(self):
        self.write("docs/page.md", "# T\n\n" + "word " * 39 + "end. " + "Word " * 39 + "end.\n")
        self.assertEqual(self.check()[0], 0)
        self.expect("First.\n\n" + "word " * 20 + "\n" + "word " * 20 + "end.\n", "docs/page.md:3: a sentence of 41 words, expected at most 40")
        self.expect("- One.\n- " + "word " * 41 + "\n", "docs/page.md:2: a sentence of 41 words")

    def test_fetched_models_are_run_where_they_are(self):
        page = "```console fetched\n$ kvant say two smollm2\none\n```\n"
        self.write("docs/page.md", page)
        self.assertEqual(self.check()[0], 0)
        self.write("models/smollm2/smollm2.gguf", "")
        self.expect(page, "docs/page.md:2: 'kvant say two smollm2'")

    def test_commands_whose_output_differs(self):
        self.expect("```console\n$ kvant say two\none\n```\n", "docs/page.md:2: 'kvant say two' prints other lines")
        self.expect("```console\n$ kvant say two\none\ntwo\nthree\n```\n", "prints other lines")
        self.expect("```console\n$ kvant say two\n...\nthree\n```\n", "prints other lines")
        self.expect("```console\n$ kvant say time\n11.5 ...\n```\n", "prints other lines")
        self.write("docs/page.md", "```console\n$ kvant say time\n12.5 ...\n```\n")
        self.assertEqual(self.check()[0], 0)
        self.expect("```console\n$ kvant say time\n8 tokens/s of 19.25\n```\n", "prints other lines")
        self.expect("```console figures\n$ kvant say time\n8 tokens of 19.25\n```\n", "prints other lines")

    def test_limits_of_a_busy_machine(self):
        self.expect("```console\n$ kvant say bound\n| 54 % compute |\n```\n", "prints other lines")
        self.write("docs/page.md", "```console figures\n$ kvant say bound\n|  54 % compute |\n```\n")
        self.assertEqual(self.check()[0], 0)

    def test_commands_that_fail_or_do_not(self):
        self.expect("```console\n$ kvant say error\nkvant: error: no\n```\n", "'kvant say error' ends with 1, expected 0")
        self.expect("```console fails\n$ kvant say two\none\ntwo\n```\n", "'kvant say two' ends with 0, expected an error")
        self.expect("```console\nkvant say two\n```\n", "a console begins with `$ COMMAND`")

    def test_commands_with_each_instruction_set(self):
        self.expect("```console isas\n$ kvant say isa\na\n```\n", "docs/page.md:2: c: 'kvant say isa' prints other lines")
        self.expect("```console\n$ kvant say isa\na\n```\n", "docs/page.md:2: 'kvant say isa' prints other lines")

    def test_pages_share_no_files(self):
        self.expect("```console\n$ kvant say again\ntext\n```\n", "'kvant say again' ends with 1, expected 0")

    def test_flags(self):
        self.expect("```sh\nkvant run m.gguf --promt a\nkvant -x\nX=1 kvant say -p; kvant tell\n```\n", "docs/page.md:2: kvant run has no option --promt",
                    "docs/page.md:3: kvant  has no option -x", "docs/page.md:4: kvant say has no option -p", "docs/page.md:4: kvant has no command 'tell'")
        self.expect("    ls | build/release/kvant run - \\\n        -q\n", "docs/page.md:1: kvant run has no option -q")
        self.expect("Say `kvant run m --quick` or `./dev lint` or `./dev run m -q`.\n", "kvant run has no option --quick", "./dev has no command 'lint'",
                    "kvant run has no option -q")
        self.expect("```sh\nkvant run m.gguf -p 'a\n```\n", "cannot be read as a command")

    def test_paths(self):
        self.expect("`base/{file,none}.h`, `base/*.cpp`, `base/foo.h` and `cpu/`\n", "there is no base/none.h", "there is no base/*.cpp", "there is no cpu/")

    def test_programs(self):
        self.expect("```python\nif True\n```\n", "docs/page.md:2: not Python")
        compiler = os.environ.get("CXX", "g++")
        if subprocess.run(["bash", "-c", f"command -v {compiler}"], stdout=subprocess.DEVNULL).returncode == 0:
            self.write("docs/page.md", "```cpp\n#include <string>\nstd::string f() { return {}; }\n```\n")
            self.assertEqual(self.check("--cxx", compiler)[0], 0)
            self.expect("```cpp\n#include <string>\nstd::string f() { return x; }\n```\n", "docs/page.md:2: does not compile", arguments=("--cxx", compiler))

    def test_the_page_of_commands(self):
        self.expect("# Commands\n", "docs/commands.md:1: differs from the help", name="docs/commands.md")
        self.write("cmake/make_commands.py", "")
        self.write("docs/commands.md", check_docs.commands_page(str(self.program)))
        code, out = self.check()
        self.assertEqual(code, 0, out)


    def test_manual_pages(self):
        script = Path(check_docs.__file__).resolve().parents[2] / "cmake" / "make_manual.py"
        subprocess.run([sys.executable, str(script), str(self.program), str(self.root / "man")], check=True)
        pages = {path.name: path.read_text(encoding="utf-8") for path in (self.root / "man").iterdir()}
        self.assertEqual(set(pages), {"kvant.1", "kvant-run.1", "kvant-say.1"})
        for name, text in pages.items():
            self.assertEqual(text.count(".SH ENVIRONMENT\n.TP\n.B KVANT_X\nWhat to say\n.SH EXIT STATUS"), 1, name)
        self.assertIn(".B \\-p, \\-\\-prompt TEXT", pages["kvant-run.1"])


class Sentences(unittest.TestCase):
    def split(self, text):
        return markdown.sentences_of(text)

    def test_where_sentences_end(self):
        self.assertEqual(self.split("One is here. kvant is two! \"Three\"? (Four.) `five` is. [six](a.b)."),
                         ["One is here.", "kvant is two!", "\"Three\"?", "(Four.)", "code is.", "six."])
        self.assertEqual(self.split("It reads e.g. a file, 1.5 times ... and more. End"), ["It reads e.g. a file, 1.5 times ... and more.", "End"])

    def test_items_and_paragraphs(self):
        page = markdown.Page("Seed 12. It *was* 7.\n\n1. One\n   more\n- **Two.** Three\n\n> Four\n")
        self.assertEqual([" ".join(words) for _, words in page.sentences()], ["Seed 12.", "It was 7.", "One more", "Two.", "Three", "Four"])

    def test_anchors(self):
        page = markdown.Page("# A `b`: C, d_e\n\n## Twice\n\n## Twice\n")
        self.assertEqual(page.anchors(), {"a-b-c-d_e", "twice", "twice-1"})


if __name__ == "__main__":
    unittest.main()
