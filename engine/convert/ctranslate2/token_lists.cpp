#include "engine/convert/ctranslate2/token_lists.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/json.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::Quoted;

constexpr uint64_t kTokenListBytesMax = uint64_t{64} << 20;  // real ones have up to 5 MB

// Texts that converters make up for rows of the embedding without a token.
constexpr std::string_view kFillers[] = {"madeupword", "<extra_id_", "<unused_"};

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

Result<TokenList> ReadTokenArray(const std::string& path) {
  KVANT_ASSIGN(const Json json, formats::ReadJson(path, kTokenListBytesMax));
  if (!json.is_array()) {
    return MakeError(ErrorCode::kCorrupt, "{}: expected an array of tokens, found {}", path,
                     json.type_name());
  }
  TokenList list{path, {}};
  list.tokens.reserve(json.size());
  for (const Json& token : json) {
    if (!token.is_string()) {
      return MakeError(ErrorCode::kCorrupt, "{}: token {} is {}, expected a text", path,
                       list.tokens.size(), formats::Shown(token));
    }
    list.tokens.push_back(token.get<std::string>());
  }
  return list;
}

Result<TokenList> ReadTokenLines(const std::string& path) {
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kTokenListBytesMax) {
    return MakeError(ErrorCode::kCorrupt, "{}: the file has {} bytes, expected at most {}", path,
                     file.bytes().size(), kTokenListBytesMax);
  }
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  TokenList list{path, {}};
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    list.tokens.emplace_back(line);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return list;
}

// The list of a name without its ending; nothing where the folder has none.
Result<std::optional<TokenList>> ReadTokenList(const std::string& folder, const char* name) {
  const std::string json = PathIn(folder, fmt::format("{}.json", name));
  const std::string lines = PathIn(folder, fmt::format("{}.txt", name));
  std::optional<TokenList> list;
  if (IsThere(json)) {
    KVANT_ASSIGN(list, ReadTokenArray(json));
  } else if (IsThere(lines)) {
    KVANT_ASSIGN(list, ReadTokenLines(lines));
  }
  return list;
}

bool IsFiller(std::string_view text) {
  return std::ranges::any_of(kFillers,
                             [text](std::string_view filler) { return text.starts_with(filler); });
}

}  // namespace

std::optional<int64_t> TokenList::Find(std::string_view text) const {
  const auto found = std::find(tokens.begin(), tokens.end(), text);
  if (found == tokens.end()) return std::nullopt;
  return found - tokens.begin();
}

Status TokenList::CheckSize(int64_t rows) const {
  if (std::ssize(tokens) == rows) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: {} tokens, but the embedding in {} has {} rows", file,
                   tokens.size(), "model.bin", rows);
}

Status TokenList::Compare(const Vocabulary& vocabulary) const {
  const size_t size = std::min(tokens.size(), vocabulary.tokens.size());
  for (size_t id = 0; id < size; ++id) {
    const std::string& read = vocabulary.tokens[id];
    const bool open = vocabulary.types[id] == Vocabulary::Type::kUnused || IsFiller(tokens[id]) ||
                      vocabulary.types[id] == Vocabulary::Type::kUserDefined;
    if (open || read == tokens[id]) continue;
    return MakeError(ErrorCode::kCorrupt,
                     "{}: token {} is {}, but the files of the tokenizer in the folder make it {}",
                     file, id, Quoted(tokens[id]), Quoted(read));
  }
  return {};
}

Result<TokenLists> ReadTokenLists(const std::string& folder) {
  for (const char* name : {"shared_vocabulary", "vocabulary"}) {
    KVANT_ASSIGN(auto one, ReadTokenList(folder, name));
    if (one) return TokenLists{std::move(*one), std::nullopt};
  }
  KVANT_ASSIGN(auto source, ReadTokenList(folder, "source_vocabulary"));
  KVANT_ASSIGN(auto target, ReadTokenList(folder, "target_vocabulary"));
  if (source && target) return TokenLists{std::move(*source), std::move(target)};
  return MakeError(ErrorCode::kIo,
                   "{}: no list of tokens: expected shared_vocabulary.json, vocabulary.json, or "
                   "source_vocabulary.json and target_vocabulary.json (or .txt)",
                   folder);
}

}  // namespace kvant::convert
