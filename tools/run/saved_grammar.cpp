#include "tools/run/saved_grammar.h"

#include <utility>

#include "base/result.h"
#include "engine/grammar/saved_text.h"
#include "tools/options/json.h"

namespace kvant::tools {
namespace {

// The text of a note that has all members with values of their types.
std::optional<SavedGrammar> GrammarOfJson(const Json& json) {
  auto text = grammar::TextOfJson(json);
  if (!text.has_value()) return std::nullopt;
  SavedGrammar out;
  out.text = std::move(*text);
  try {
    json.at("begin").get_to(out.begin);
    json.at("end").get_to(out.end);
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  if (out.begin < 1 || out.begin > out.end) return std::nullopt;
  return out;
}

}  // namespace

std::string NoteOf(const SavedGrammar& saved) {
  Json json = grammar::JsonOfText(saved.text);
  json["begin"] = saved.begin;
  json["end"] = saved.end;
  return Dump({{"grammar", json}});
}

Result<std::optional<SavedGrammar>> ReadNote(const std::string& path, const std::string& note) {
  if (note.empty()) return std::optional<SavedGrammar>();
  const Json json = Json::parse(note, nullptr, false);
  if (json.is_object() && json.contains("grammar")) {
    if (auto saved = GrammarOfJson(json["grammar"])) return saved;
  }
  return MakeError(ErrorCode::kCorrupt,
                   "{}: expected the grammar of its text in the note, found something else", path);
}

}  // namespace kvant::tools
