#!/usr/bin/env python3
"""Writes kvant/_bindings.py: what ctypes must know of the C API, from its headers.

    make_bindings.py            writes the file
    make_bindings.py --check    fails where the file is not what the headers say

The headers are read as they are written: one declaration ends with a semicolon, comments begin with //. A type that this program does
not know is an error, so that nothing is left out silently.
"""
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
HEADERS = [FOLDER.parent / "include/kvant" / name for name in ("kvant.h", "kvant_runner.h", "kvant_generate.h", "kvant_conversation.h", "kvant_embed.h")]
OUT = FOLDER / "kvant/_bindings.py"

SCALARS = {
    "void": "None", "size_t": "c_size_t", "float": "c_float", "double": "c_double", "int32_t": "c_int32", "uint32_t": "c_uint32",
    "int64_t": "c_int64", "uint64_t": "c_uint64",
}


def declarations(text):
    """The declarations of a header, each on one line."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"#[^\n]*", "", text)
    text = text.replace('extern "C" {', "").replace("KVANT_API ", "")
    out, depth, begin = [], 0, 0
    for i, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:  # the end of extern "C"
            depth, begin = 0, i + 1
        elif character == ";" and depth == 0:
            out.append(" ".join(text[begin:i].split()))
            begin = i + 1
    return out


class Header:
    def __init__(self):
        self.numbers = []    # (name, value)
        self.types = dict(SCALARS)
        self.handles = set()
        self.structs = []    # (name, [(field, type)])
        self.lines = []      # of structs and callbacks, in their order
        self.functions = []  # (name, result, [types])

    def type_of(self, text, sized=False):
        """The ctypes name of a C type. `sized`: a count follows, so a text may have zeros in it."""
        text = text.replace("const", "").replace("struct ", "").strip()
        stars = text.count("*")
        base = text.replace("*", "").strip()
        if stars == 0:
            return self.types[base]
        if base == "char" and stars == 1:
            return "c_void_p" if sized else "c_char_p"
        if base == "char":
            return "POINTER(c_char_p)" if not sized else "POINTER(c_void_p)"
        if base in self.handles or base == "void":
            return "c_void_p" if stars == 1 else "POINTER(c_void_p)"
        if any(base == name for name, _ in self.structs):
            return f"POINTER({base})"
        if stars == 1:  # arrays, and numbers that a call writes
            self.types[base]
            return "c_void_p"
        return f"POINTER(POINTER({self.types[base]}))"

    def parameters(self, text):
        """The types of a list of parameters: "void* user, int64_t done"."""
        if text.strip() in ("", "void"):
            return []
        parts = [part.strip() for part in text.split(",")]
        split = [re.fullmatch(r"(.*?[\s*])(\w+)", part).groups() for part in parts]
        out = []
        for i, (kind, _) in enumerate(split):
            text_array = kind.replace(" ", "") == "constchar*const*"
            following = split[i + 1] if i + 1 < len(split) else ("", "")
            sized = following[0].strip() in ("size_t", "size_t*") and following[1] == "size" and not text_array
            # Arguments of a caller may be bytes in any case; results, and arguments of callbacks, may not.
            given = kind.replace(" ", "") == "constchar*" and not self.in_callback
            out.append(self.type_of(kind, sized and not given))
        return out

    in_callback = False

    def callback(self, result, parameters):
        self.in_callback = True
        types = self.parameters(parameters)
        self.in_callback = False
        return f"CFUNCTYPE({', '.join([self.type_of(result), *types])})"

    def add(self, text):
        if found := re.fullmatch(r"(?:typedef )?enum (\w*) ?\{(.*)\} ?(\w*)", text):
            for part in found[2].split(","):
                if part.strip():
                    name, value = part.split("=")
                    self.numbers.append((name.strip(), int(value)))
            if found[3]:
                self.types[found[3]] = "c_int32"
        elif found := re.fullmatch(r"typedef struct (\w+) (\w+)", text):
            self.handles.add(found[1])
        elif found := re.fullmatch(r"typedef struct (\w+) \{(.*)\} (\w+)", text):
            fields = self.fields(found[2])
            self.structs.append((found[1], fields))
            self.types[found[1]] = found[1]
            self.lines += ["", "", f"class {found[1]}(Structure):", "    _fields_ = ["]
            self.lines += [f'        ("{field}", {kind}),' for field, kind in fields]
            self.lines += ["    ]"]
        elif found := re.fullmatch(r"typedef (\w+) \(\*(\w+)\)\((.*)\)", text):
            self.lines += ["", "", f"{found[2]} = {self.callback(found[1], found[3])}"]
            self.types[found[2]] = found[2]
        elif re.fullmatch(r"struct \w+", text):
            pass  # one that another header defines
        elif found := re.fullmatch(r"typedef (\w+) (\w+)", text):
            self.types[found[2]] = self.types[found[1]]
        elif found := re.fullmatch(r"(.*?[\s*])(kvant_\w+)\((.*)\)", text):
            parameters = self.parameters(found[3])
            result = self.type_of(found[1], "size_t* size" in found[3] or "size_t* count" in found[3])
            if found[1].strip() == "kvant_status" and found[2] != "kvant_status_name":
                result = "STATUS"
            self.functions.append((found[2], result, parameters))
        elif text:
            raise SystemExit(f"make_bindings: cannot read: {text}")

    def fields(self, text):
        out = []
        lines = [line.strip() for line in text.split(";") if line.strip()]
        for i, line in enumerate(lines):
            if found := re.fullmatch(r"(\w+) \(\*(\w+)\)\((.*)\)", line):
                out.append((found[2], self.callback(found[1], found[3])))
                continue
            kind, names = re.fullmatch(r"((?:const )?\w+(?:\* const\*|\*)?) (.*)", line).groups()
            sized = i + 1 < len(lines) and lines[i + 1] == "size_t size"
            for name in names.split(","):
                out.append((name.strip(), self.type_of(kind, sized)))
        return out


def write(header, abi):
    lines = ['"""The C API as ctypes sees it. Written by make_bindings.py from include/kvant/*.h."""', "# fmt: off",
             "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64,",
             "                    c_void_p)", "", f"ABI_VERSION = {abi}", 'STATUS = "status"  # a call that returns one', ""]
    lines += [f"{name.removeprefix('KVANT_')} = {value}" for name, value in header.numbers]
    lines += header.lines
    lines += ["", "", "# Name: what it returns, what it takes.", "FUNCTIONS = {"]
    for name, result, parameters in header.functions:
        line = f'    "{name}": ({result}, [{", ".join(parameters)}]),'
        lines.append(line)
    lines += ["}"]
    return "\n".join(lines) + "\n"


def main():
    header, abi = Header(), None
    for path in HEADERS:
        text = path.read_text()
        found = re.search(r"#define KVANT_ABI_VERSION (\d+)", text)
        abi = int(found[1]) if found else abi
        for declaration in declarations(text):
            header.add(declaration)
    text = write(header, abi)
    if sys.argv[1:] == ["--check"]:
        if OUT.read_text() != text:
            raise SystemExit(f"make_bindings: {OUT} is not what the headers say: run python/make_bindings.py")
        return
    OUT.write_text(text)


if __name__ == "__main__":
    main()
