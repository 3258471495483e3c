# Python package gguf 0.19.0 of PyPI, with numpy 2.2.6.
#
# Good guess: GGUFWriter writes each key that it is given. The format has lengths of 64 bits for strings and
# arrays, a length of 0 is valid, and GGUFReader of the same package reads such a string and such an array.
# Seen: add_string(key, "") and add_array(key, []) leave the key out, without an error or a warning; 0 and
# False are written. So a copy of a file through both classes loses keys: a chat template that was emptied on
# purpose is then one that is not set, for which programs take a default.
source "$(dirname "$0")/common.bash"

python_with gguf==0.19.0 numpy==2.2.6
cat >script.py <<'END'
import struct

import gguf

STRING, ARRAY = 8, 9


def read(path):
    fields = gguf.GGUFReader(path).fields
    return {name.split(".")[-1]: field.contents() for name, field in fields.items()
            if not name.startswith("GGUF.")}


writer = gguf.GGUFWriter("writer.gguf", "llama")
writer.add_string("tokenizer.chat_template", "")
writer.add_array("tokenizer.ggml.merges", [])
writer.add_uint32("llama.leading_dense_block_count", 0)
writer.add_bool("tokenizer.ggml.add_bos_token", False)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


# The bytes of a file with both empty values, by the definition of the format.
with open("definition.gguf", "wb") as file:
    file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 3))
    file.write(text("general.architecture") + struct.pack("<I", STRING) + text("llama"))
    file.write(text("tokenizer.chat_template") + struct.pack("<I", STRING) + text(""))
    file.write(text("tokenizer.ggml.merges") + struct.pack("<IIQ", ARRAY, STRING, 0))

print(read("writer.gguf"))
print(read("definition.gguf"))
END
"$python" script.py >output
expect "what GGUFWriter wrote of an empty string, an empty array, 0 and False" \
  "{'architecture': 'llama', 'leading_dense_block_count': 0, 'add_bos_token': False}" "$(sed -n 1p output)"
expect "what GGUFReader reads of a file with both empty values" \
  "{'architecture': 'llama', 'chat_template': '', 'merges': []}" "$(sed -n 2p output)"
