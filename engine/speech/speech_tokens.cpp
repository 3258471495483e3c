#include "engine/speech/speech_tokens.h"

#include <algorithm>
#include <map>

#include "engine/jinja/text.h"
#include "engine/text/languages.h"

namespace kvant::speech {
namespace {

// Characters and strings that are written and not spoken.
constexpr std::string_view kSymbols[] = {
    "\"",  "#",  "(",  ")",   "*",   "+",   "/",   ":",  ";",   "<",  "=",  ">",
    "@",   "[",  "\\", "]",   "^",   "_",   "`",   "{",  "|",   "}",  "~",  "「",
    "」",  "『", "』", "<<",  ">>",  "<<<", ">>>", "--", "---", "-(", "-[", "('",
    "(\"", "((", "))", "(((", ")))", "[[",  "]]",  "{{", "}}",  "♪♪", "♪♪♪"};
// Signs of music. Where such a sign is several tokens, the first one is shared by signs of its kind
// alone.
constexpr std::string_view kMusic[] = {"♩", "♪", "♫", "♬", "♭", "♮", "♯"};
// These stand inside words, but never in front of one.
constexpr std::string_view kInWords[] = {" -", " '"};

using TokenNames = std::map<std::string_view, TokenId>;

TokenNames ControlTokens(const Tokenizer& tokenizer) {
  TokenNames names;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_control(id)) names.emplace(tokenizer.piece(id), id);
  }
  return names;
}

Status FindTokens(const Model& model, const TokenNames& names, SpeechTokens& out) {
  struct Wanted {
    std::string_view name;
    TokenId* id;
  };
  for (const auto& [name, id] :
       {Wanted{"<|startoftranscript|>", &out.start}, Wanted{"<|translate|>", &out.translate},
        Wanted{"<|transcribe|>", &out.transcribe}, Wanted{"<|startoflm|>", &out.language_model},
        Wanted{"<|startofprev|>", &out.previous}, Wanted{"<|notimestamps|>", &out.no_times},
        Wanted{"<|0.00|>", &out.first_time}}) {
    const auto found = names.find(name);
    if (found == names.end()) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: expected a token {} to transcribe with, found none",
                       model.file().path(), name);
    }
    *id = found->second;
  }
  for (const std::string_view name : {"<|nospeech|>", "<|nocaptions|>"}) {
    const auto found = names.find(name);
    if (found != names.end()) out.no_speech = found->second;
  }
  return {};
}

}  // namespace

Result<SpeechTokens> ReadSpeechTokens(const Model& model) {
  if (!model.frame_shape().has_value() || !model.has_decoder()) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: expected a model that reads frames of sound, such as Whisper, found {}",
                     model.file().path(), model.architecture());
  }
  const Tokenizer& tokenizer = model.tokenizer();
  SpeechTokens out;
  KVANT_TRY(FindTokens(model, ControlTokens(tokenizer), out));
  if (!tokenizer.special().eos.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "{}: expected a token that ends texts, found none",
                     model.file().path());
  }
  out.end = *tokenizer.special().eos;
  const int64_t times = model.frame_shape()->frames / 2 + 1;
  if (out.first_time + times > model.vocab_size() || out.end > out.first_time) {
    return MakeError(
        ErrorCode::kNotSupported,
        "{}: expected {} tokens of times behind all others, found <|0.00|> as {} of {}",
        model.file().path(), times, out.first_time, model.vocab_size());
  }
  KVANT_ASSIGN(const Languages languages, ReadLanguages(model));
  out.languages = languages.tokens;
  KVANT_ASSIGN(out.blank, tokenizer.Encode(" ", {}));
  out.blank.push_back(out.end);
  return out;
}

Result<std::vector<TokenId>> SuppressedTokens(const Tokenizer& tokenizer,
                                              const SpeechTokens& tokens,
                                              const TranscribeOptions& options) {
  std::vector<TokenId> out = options.suppress_tokens;
  out.insert(out.end(), {tokens.start, tokens.translate, tokens.transcribe, tokens.language_model,
                         tokens.previous});
  if (tokens.no_speech.has_value()) out.push_back(*tokens.no_speech);
  enum class Take : uint8_t { kSingle, kFirst };
  const auto add = [&](const std::string& text, Take take) -> Status {
    KVANT_ASSIGN(const std::vector<TokenId> ids, tokenizer.Encode(text, {}));
    const bool fits = take == Take::kFirst ? !ids.empty() : ids.size() == 1;
    if (fits) out.push_back(ids.front());
    return {};
  };
  if (options.suppress_symbols) {
    for (const std::string_view text : kInWords) KVANT_TRY(add(std::string(text), Take::kFirst));
    for (const std::string_view symbol : kSymbols) {
      KVANT_TRY(add(std::string(symbol), Take::kSingle));
      KVANT_TRY(add(" " + std::string(symbol), Take::kSingle));
    }
    for (const std::string_view sign : kMusic) {
      KVANT_TRY(add(std::string(sign), Take::kFirst));
      KVANT_TRY(add(" " + std::string(sign), Take::kFirst));
    }
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string TextOf(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  Utf8Stream stream;
  std::string text = stream.Push(tokenizer.Decode(tokens, {.special = true}));
  return text + stream.Finish();
}

std::string Stripped(std::string_view text) {
  return jinja::StripText(jinja::Text(std::string(text)), jinja::Side::kBoth).bytes();
}

}  // namespace kvant::speech
