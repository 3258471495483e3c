// The order of folders that tests/tidy_test.cpp checks. Whoever adds a folder adds its line here.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kvant::test {

// Rooms of the source tree, and the rooms that their files may include. "kvant" are the public
// headers, in include/kvant.
inline const std::map<std::string, std::set<std::string>> kRooms = {
    {"include", {"kvant"}},
    {"base", {"kvant", "base"}},
    {"quant", {"kvant", "base", "quant"}},
    {"formats", {"kvant", "base", "quant", "formats"}},
    {"cpu", {"kvant", "base", "quant", "cpu"}},
    {"cuda", {"kvant", "base", "quant", "cuda"}},
    {"engine", {"kvant", "base", "quant", "formats", "cpu", "cuda", "engine"}},
    {"tools", {"kvant", "base", "quant", "formats", "cpu", "cuda", "engine", "tools"}},
};

// engine/ from the bottom up. A file belongs to the line with the longest beginning of its path in
// common, and includes files of its own line and of lines above it here, never of lines below.
inline const std::vector<std::string_view> kEngineOrder = {
    "engine/limits.h",       "engine/option_field.h",
    "engine/kv/kv_type.",    "engine/grammar/",
    "engine/tokenizer/",     "engine/jinja/",
    "engine/kv/accounting/", "engine/kv/policies",
    "engine/kv/stores/",     "engine/kv/",
    "engine/graph/",
    "engine/arch/",  // sublayers/, families/ and hf/ are known to its lists, and know it
    "engine/model/",         "engine/run/",
    "engine/embed/",         "engine/text/",
    "engine/evaluate/",      "engine/generate/",
    "engine/speech/",        "engine/convert/",
    "engine/quantize/",      "engine/capi/",
};

// Folders of cpu/, and the other folders there that they may include. Files of cpu/ itself know
// all, and all know them.
inline const std::map<std::string, std::set<std::string>> kCpuFolders = {
    {"cpu/kernels", {}},
    {"cpu/kv_formats", {}},
    {"cpu/generic", {"cpu/kernels"}},
    {"cpu/scalar", {"cpu/kernels", "cpu/generic"}},
    {"cpu/avx2", {"cpu/kernels", "cpu/generic"}},
    {"cpu/avxvnni", {"cpu/kernels", "cpu/generic", "cpu/avx2"}},
    {"cpu/avx512vnni", {"cpu/kernels", "cpu/generic", "cpu/avx2"}},
    {"cpu/avx512vbmi", {"cpu/kernels", "cpu/generic", "cpu/avx2", "cpu/avx512vnni"}},
    {"cpu/amx", {"cpu/kernels", "cpu/generic", "cpu/avx2", "cpu/avx512vnni", "cpu/avx512vbmi"}},
    {"cpu/neon", {"cpu/kernels", "cpu/generic"}},
    {"cpu/i8mm", {"cpu/kernels", "cpu/generic", "cpu/neon"}},
};

// Public headers that rooms below engine/ may include.
inline const std::set<std::string> kBasicHeaders = {"kvant/file_access.h",      "kvant/kv_type.h",
                                                    "kvant/lost_mapping.h",     "kvant/result.h",
                                                    "kvant/thread_placement.h", "kvant/token_id.h"};

// Where names of model families and of block formats may stand as literals. Each file in the folder
// of families is named after one.
inline constexpr std::string_view kFolderOfFamilies = "engine/arch/families/";
// Tokenizers have lists of their own: kinds, pre-tokenizers, and parts of model names. Some of
// their entries are spelt like a family, but name something else, and so does what a class calls
// its layers, and what programs are called whose scores of beams are known.
inline const std::vector<std::string_view> kFilesOfTokenizers = {
    "engine/tokenizer/", "engine/convert/pre_tokenizer_name.", "engine/arch/hf/hf_nemotron_h.",
    "engine/generate/beam_options."};
inline const std::vector<std::string_view> kNamesOfFormats = {"quant/", "engine/quantize/recipe"};

}  // namespace kvant::test
