#include "engine/convert/ctranslate2/ranked_merges.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::Quoted;
using Ranks = std::unordered_map<std::string_view, size_t>;

// The characters of a text in UTF-8.
std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

// Merges the parts of a text by the tokens before number `limit`, the oldest first.
std::vector<std::string_view> CutByOlder(std::string_view text, size_t limit, const Ranks& ranks) {
  std::vector<std::string_view> parts = Characters(text);
  while (parts.size() > 1) {
    size_t best = limit;
    size_t place = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      // The parts of a text lie behind each other.
      const std::string_view pair(parts[i].data(), parts[i].size() + parts[i + 1].size());
      const auto found = ranks.find(pair);
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      place = i;
    }
    if (best == limit) break;
    parts[place] = {parts[place].data(), parts[place].size() + parts[place + 1].size()};
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  return parts;
}

}  // namespace

Result<Json> TokenizerOfRanks(std::span<const std::string> tokens, size_t texts,
                              const std::string& file) {
  Ranks ranks;
  Json vocab = Json::object();
  for (size_t id = 0; id < std::min(texts, tokens.size()); ++id) {
    const bool is_new = ranks.emplace(tokens[id], id).second;
    if (!is_new) {
      return MakeError(ErrorCode::kCorrupt, "{}: tokens {} and {} are both {}", file,
                       ranks.at(tokens[id]), id, Quoted(tokens[id]));
    }
    vocab[tokens[id]] = id;
  }
  Json merges = Json::array();
  for (size_t id = 0; id < std::min(texts, tokens.size()); ++id) {
    const auto parts = CutByOlder(tokens[id], id, ranks);
    if (parts.size() < 2) continue;
    if (parts.size() > 2) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: token {}, {}, is not made of two tokens before it, so that the list "
                       "does not say how texts are cut; expected the original model's "
                       "tokenizer.json in the folder",
                       file, id, Quoted(tokens[id]));
    }
    merges.push_back(Json::array_t{std::string(parts[0]), std::string(parts[1])});
  }
  Json added = Json::array();
  for (size_t id = texts; id < tokens.size(); ++id) {
    added.push_back({{"id", id}, {"content", tokens[id]}, {"special", true}});
  }
  Json root;
  root["added_tokens"] = std::move(added);
  root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  root["model"] = {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}};
  return root;
}

}  // namespace kvant::convert
