// kvant logits: the model's raw output for given tokens, as a NumPy file. With --no-kv-cache it is
// the oracle that the cached ways of computing are compared with.
#include <fmt/format.h>

#include <charconv>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/npy.h"
#include "kvant/kv_type.h"
#include "tools/commands.h"
#include "tools/common_options.h"
#include "tools/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kLogitsHelp = {
    "MODEL (--tokens 1,2,3 | -p TEXT) -o OUT.npy [OPTIONS]",
    "Writes the logits that follow each token as float32 [tokens, vocabulary] in NumPy's format.\n"
    "Token ids are taken as given, and text as it is: no BOS is added. The KV cache is f32 here\n"
    "unless asked otherwise, for exact comparisons.",
    "  kvant logits model.gguf --tokens 1,403,407 -o logits.npy\n"
    "  kvant logits model.gguf -p \"Once upon a time\" --last -o next.npy\n"
    "  kvant logits model.gguf --tokens 1,403,407 --no-kv-cache -o oracle.npy\n",
};

struct LogitsOptions {
  ModelGroup model;
  TextGroup text;
  SessionGroup session;
  std::optional<std::string> tokens;
  std::optional<std::string> source;
  std::optional<std::string> source_tokens;
  LanguageNames languages;
  std::optional<std::string> output;
  bool last = false;
};

Result<std::vector<TokenId>> ParseTokens(const char* option, std::string_view text) {
  std::vector<TokenId> ids;
  while (true) {
    const std::string_view word = text.substr(0, text.find(','));
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size()) {
      return MakeError(ErrorCode::kInvalid,
                       "{}: expected ids separated by commas, as in 1,2,3, found '{}'", option,
                       word.substr(0, 40));
    }
    ids.push_back(id);
    if (word.size() == text.size()) return ids;
    text.remove_prefix(word.size() + 1);
  }
}

Result<std::vector<TokenId>> Tokens(const LogitsOptions& options,
                                    const std::optional<std::string>& text,
                                    const Tokenizer& tokenizer) {
  if (!text.has_value()) return ParseTokens("--tokens", *options.tokens);
  KVANT_ASSIGN(auto ids, tokenizer.Encode(*text, {.add_special = false, .parse_special = true}));
  if (ids.empty()) return MakeError(ErrorCode::kInvalid, "the text has no tokens");
  return ids;
}

// Gives the session of an encoder-decoder the source that the tokens answer.
Status TakeSource(const LogitsOptions& options, const Model& model, Session& session) {
  const bool by_text = options.source.has_value();
  const bool by_ids = options.source_tokens.has_value();
  if (!model.has_encoder()) {
    if (!by_text && !by_ids) return {};
    return MakeError(ErrorCode::kInvalid, "{}: the model reads no source, found --source{}",
                     model.file().path(), by_text ? "" : "-tokens");
  }
  if (by_text == by_ids) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: the model reads a source: give either --source or --source-tokens",
                     model.file().path());
  }
  std::vector<TokenId> tokens;
  if (options.source.has_value()) {
    KVANT_ASSIGN(const Translation translation, MakeTranslation(model, options.languages));
    KVANT_ASSIGN(tokens, EncodeSource(model, translation, *options.source));
  } else {
    KVANT_ASSIGN(tokens, ParseTokens("--source-tokens", *options.source_tokens));
  }
  KVANT_ASSIGN(const SourceId source, session.runner().Encode(tokens));
  return session.runner().SetSource(session.sequence(), source);
}

Status WriteLogits(const LogitsOptions& options, const Positionals& positionals) {
  KVANT_ASSIGN(const auto text, options.text.Read(positionals));
  if (text.has_value() == options.tokens.has_value()) {
    return MakeError(ErrorCode::kInvalid, "give either --tokens or a text by -p, -f or -");
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  KVANT_ASSIGN(const auto tokens, Tokens(options, text, model->tokenizer()));
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (session_options.context == 0) session_options.context = count;
  KVANT_ASSIGN(const auto session, options.session.Open(model, session_options));
  KVANT_TRY(TakeSource(options, *model, *session));
  StatusLine status(StatusUse::kShown);
  KVANT_ASSIGN(auto file, formats::NpyWriter::Create(*options.output, options.last ? 1 : count,
                                                     model->vocab_size()));
  if (options.last) {
    KVANT_TRY(session->Append(tokens));
    KVANT_TRY(file.WriteRows(session->logits()));
    return file.Finish();
  }
  int64_t done = 0;
  KVANT_TRY(session->AppendAll(tokens, [&](std::span<const float> row) {
    if (++done % 64 == 0) status.Set(fmt::format("{} of {} tokens", done, count));
    return file.WriteRows(row);
  }));
  return file.Finish();
}

}  // namespace

int LogitsCommand(CommandLine& line) {
  LogitsOptions options;
  options.session.kv_type = KvType::kF32;
  OptionList list;
  list.Group("Input");
  list.Text("--tokens", &options.tokens, "IDS", "Token ids separated by commas");
  list.Text("--source", &options.source, "TEXT",
            "Of an encoder-decoder: what is read before the tokens, with the tokens that belong "
            "around a text");
  list.Text("--source-tokens", &options.source_tokens, "IDS",
            "The same by token ids, which are taken as given");
  AddLanguageOptions(list, options.languages);
  options.text.Add(list, "Input", "text");
  list.Group("Output");
  list.Text("-o,--output", &options.output, "OUT.npy", "Write the logits to this file");
  list.Flag("--last", &options.last, "Only the last token's logits, [1, vocabulary]");
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.Add(list, SessionUse::kTexts, "as many as there are tokens");
  AddIdleOptions(list);
  if (const auto code = line.Parse(list, kLogitsHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  if (!options.output.has_value()) return line.UsageError("no output file given: use -o OUT.npy");
  const Status status = WriteLogits(options, positionals);
  return status.ok() ? kExitDone : Fail(status.error());
}

}  // namespace kvant::tools
