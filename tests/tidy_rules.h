// What tests/tidy_test.cpp knows of the order of folders, in one place: whoever adds a folder adds
// its line here.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kvant::test {

// Rooms of the source tree, and the rooms that their files may include.
inline const std::map<std::string, std::set<std::string>> kRooms = {
    {"base", {"base"}},
    {"quant", {"base", "quant"}},
    {"formats", {"base", "quant", "formats"}},
    {"cpu", {"base", "quant", "cpu"}},
    {"cuda", {"base", "quant", "cuda"}},
    {"engine", {"base", "quant", "formats", "cpu", "cuda", "engine"}},
    {"tools", {"base", "quant", "formats", "cpu", "cuda", "engine", "tools"}},
};

// engine/ from the bottom up. A file belongs to the line with the longest beginning of its path in
// common, and includes files of its own line and of lines above it here, never of lines below.
inline const std::vector<std::string_view> kEngineOrder = {
    "engine/token_id",
    "engine/limits.h",
    "engine/sequence_host.h",
    "engine/kv_type_names.",
    "engine/tokenizer/",
    "engine/kv/accounting/",
    "engine/kv/policies",
    "engine/kv/stores/",
    "engine/kv/",
    "engine/graph/",
    "engine/arch/",  // sublayers/, families/ and hf/ are known to its lists, and know it
    "engine/model.",
    "engine/session_options.",
    "engine/memory_plan.",
    "engine/kv_tensors.h",
    "engine/run",  // run/ and runner.*, which is made of its parts
    "engine/",     // runner.h, session.h and what implements them
    "engine/evaluate/",
    "engine/generate/",
    "engine/convert/",
    "engine/quantize/",
};

// Folders of cpu/, and the other folders there that they may include. Files of cpu/ itself know
// all, and all know them.
inline const std::map<std::string, std::set<std::string>> kCpuFolders = {
    {"cpu/generic", {}},
    {"cpu/scalar", {"cpu/generic"}},
    {"cpu/avx2", {"cpu/generic"}},
    {"cpu/avxvnni", {"cpu/generic", "cpu/avx2"}},
    {"cpu/avx512vnni", {"cpu/generic", "cpu/avx2"}},
    {"cpu/amx", {"cpu/generic", "cpu/avx2", "cpu/avx512vnni"}},
    {"cpu/neon", {"cpu/generic"}},
    {"cpu/i8mm", {"cpu/generic", "cpu/neon"}},
};

// Where names of model families and of block formats may stand as literals.
inline const std::vector<std::string_view> kNamesOfFamilies = {"engine/arch/families/"};
inline const std::vector<std::string_view> kNamesOfFormats = {"quant/", "engine/quantize/recipe"};

}  // namespace kvant::test
