"""Models that come with kvant and are known by a name, as the program knows them: the files models/*/NAME.gguf of the source tree, or of the
data folder of an installation, as seen from where the library and the program lie."""
import os
import shutil
from pathlib import Path
from typing import List

from .errors import IoError

# Relative to the folder of the library, or of the program: build/PRESET of the source tree, PREFIX/bin, PREFIX/lib or PREFIX/lib/TRIPLE.
_OWN = ("../share/kvant/models", "../../share/kvant/models", "../../models")
_FETCHED = ("../../build/models",)


def _places() -> List[Path]:
    """The folders of the library, as the process has mapped it, and of the program."""
    found = []
    try:
        for line in Path("/proc/self/maps").read_text().splitlines():
            path = line.split(maxsplit=5)[5] if "libkvant.so" in line else ""
            if path and Path(path).parent not in found:
                found.append(Path(path).parent)
    except OSError:
        pass
    program = shutil.which("kvant")
    return found + ([Path(program).resolve().parent] if program else [])


def find_model(name: str) -> str:
    """The path of the model that a caller names: `name` itself where there is such a file or it looks like a path, else the file of the
    model of that name. IoError, with the names that there are, where there is neither."""
    if os.path.exists(name) or "/" in name or name.endswith(".gguf") or not name:
        return name
    own, fetched = ([folder for place in _places() for relative in relatives for folder in sorted((place / relative).glob("*"))]
                    for relatives in (_OWN, _FETCHED))
    for folder in own + fetched:
        if (file := folder / f"{name}.gguf").is_file():
            return str(file.resolve())
    names = _listed(" or a model that comes with kvant", own) + _listed(" or one of './dev models'", fetched)
    raise IoError(f"{name}: expected a GGUF file{names}, found no such file")


def _listed(what: str, folders: List[Path]) -> str:
    known = sorted({folder.name for folder in folders if (folder / f"{folder.name}.gguf").is_file()})
    return f"{what} ({', '.join(known)})" if known else ""
