#include "tools/serve/request/fill_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/result.h"

namespace kvant::tools {
namespace {

using Ids = std::vector<TokenId>;

Refusal EncodeGapText(const Tokenizer& tokenizer, const std::string& text, const char* field,
                      Ids* out) {
  auto ids = tokenizer.Encode(text, {});
  if (!ids.ok()) return ApiErrorOf(ids.error(), field);
  out->insert(out->end(), ids->begin(), ids->end());
  return {};
}

// The other files, and the name of the file with the gap.
Refusal EncodeFiles(const Tokenizer& tokenizer, const FillTokens& tokens, const GapText& gap,
                    Ids* out) {
  constexpr const char* kField = "input_extra";
  if (tokens.repository.has_value()) {
    out->push_back(*tokens.repository);
    KVANT_REFUSE(EncodeGapText(tokenizer, "myproject\n", kField, out));
  }
  const auto begin_file = [&](const std::string& name) -> Refusal {
    out->push_back(*tokens.file);
    return EncodeGapText(tokenizer, name + "\n", kField, out);
  };
  for (const auto& [name, text] : gap.files) {
    if (tokens.file.has_value()) {
      KVANT_REFUSE(begin_file(name));
    } else {
      KVANT_REFUSE(EncodeGapText(tokenizer, "\n\n--- snippet ---\n\n", kField, out));
    }
    KVANT_REFUSE(EncodeGapText(tokenizer, text, kField, out));
  }
  return tokens.file.has_value() ? begin_file("filename") : Refusal();
}

void KeepEnd(Ids& ids, int64_t count) { ids.erase(ids.begin(), ids.end() - count); }

// How many tokens of the prefix and of the suffix stay.
std::pair<int64_t, int64_t> CutGap(int64_t prefix, int64_t suffix, int64_t room) {
  const int64_t both = std::min(room, kGapTokensMax);
  const int64_t suffix_share = both / 4;
  const int64_t kept_prefix =
      std::min(prefix, std::max(both - suffix_share, both - std::min(suffix, both)));
  return {kept_prefix, std::min(suffix, both - kept_prefix)};
}

Refusal ReadFile(const RequestJson& file, size_t number, GapText* out) {
  const std::string name = fmt::format("input_extra[{}]", number);
  if (!file.is_object()) return WrongType(name, "an object with a text", file);
  std::string text;
  const RequestJson* const given = Member(file, "text");
  if (given == nullptr || !given->is_string()) {
    return WrongType(name + ".text", "a text", given == nullptr ? RequestJson() : *given);
  }
  const RequestJson* const named = Member(file, "filename");
  if (named != nullptr && !named->is_string()) {
    return WrongType(name + ".filename", "a text", *named);
  }
  out->files.emplace_back(named == nullptr ? "tmp" : named->get<std::string>(),
                          given->get<std::string>());
  return {};
}

}  // namespace

Refusal ReadGap(const RequestJson& body, GapText* out) {
  KVANT_REFUSE(ReadText(body, "input_prefix", &out->prefix));
  KVANT_REFUSE(ReadText(body, "input_suffix", &out->suffix));
  if (Member(body, "prompt") != nullptr) KVANT_REFUSE(ReadText(body, "prompt", &out->begun));
  const RequestJson* const files = Member(body, "input_extra");
  if (files == nullptr) return {};
  if (!files->is_array()) return WrongType("input_extra", "a list of objects", *files);
  for (size_t i = 0; i < files->size(); ++i) KVANT_REFUSE(ReadFile((*files)[i], i, out));
  return {};
}

Refusal CheckFills(const FillTokens& tokens) {
  if (tokens.can_fill()) return {};
  std::string missing;
  const auto add = [&](const std::optional<TokenId>& token, const char* name) {
    if (!token.has_value()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  };
  add(tokens.prefix, "prefix");
  add(tokens.suffix, "suffix");
  add(tokens.middle, "middle");
  ApiError error;
  error.status = 501;
  error.message = fmt::format(
      "this model fills no gaps: its vocabulary has no tokens for this (missing: {})", missing);
  return error;
}

Refusal MakeGapPrompt(const Tokenizer& tokenizer, const FillTokens& tokens, const GapText& gap,
                      int64_t tokens_max, Ids* out) {
  Ids prefix;
  Ids suffix;
  Ids begun;
  Ids files;
  KVANT_REFUSE(EncodeGapText(tokenizer, gap.prefix, "input_prefix", &prefix));
  KVANT_REFUSE(EncodeGapText(tokenizer, gap.suffix, "input_suffix", &suffix));
  KVANT_REFUSE(EncodeGapText(tokenizer, gap.begun, "prompt", &begun));
  KVANT_REFUSE(EncodeFiles(tokenizer, tokens, gap, &files));
  const SpecialTokens& special = tokenizer.special();
  const bool has_bos = special.add_bos && special.bos.has_value();
  if (tokens_max >= 0) {
    constexpr int64_t kMarks = 3;  // prefix, suffix, middle
    int64_t room = tokens_max - std::ssize(begun) - kMarks - (has_bos ? 1 : 0);
    if (room < 0) {
      return WrongValue("prompt", fmt::format("it has {} tokens, and there is room for {}",
                                              begun.size(), room + std::ssize(begun)));
    }
    const auto [before, behind] = CutGap(std::ssize(prefix), std::ssize(suffix), room);
    KeepEnd(prefix, before);
    suffix.resize(static_cast<size_t>(behind));
    room -= before + behind;
    KeepEnd(files, std::min(room, std::ssize(files)));
  }
  if (has_bos) out->push_back(*special.bos);
  const auto add = [&](const Ids& ids) { out->insert(out->end(), ids.begin(), ids.end()); };
  add(files);
  out->push_back(*tokens.prefix);
  add(prefix);
  add(begun);
  out->push_back(*tokens.suffix);
  add(suffix);
  out->push_back(*tokens.middle);
  return {};
}

std::vector<std::string> GapEnds(const Tokenizer& tokenizer, const FillTokens& tokens) {
  std::vector<std::string> out;
  for (const auto& token : {tokens.prefix, tokens.suffix, tokens.middle, tokens.repository,
                            tokens.file, tokens.padding}) {
    if (!token.has_value() || tokenizer.is_control(*token)) continue;
    if (std::string text = tokenizer.TokenBytes(*token, {}); !text.empty()) {
      out.push_back(std::move(text));
    }
  }
  return out;
}

}  // namespace kvant::tools
