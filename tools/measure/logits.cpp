// kvant logits: the model's raw output for given tokens, as a NumPy file. With --no-kv-cache they
// are the oracle that computing with a cache is compared with.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/result.h"
#include "engine/arch/spec.h"
#include "formats/gguf.h"
#include "formats/npy.h"
#include "kvant/kv_type.h"
#include "tools/commands.h"
#include "tools/options/frames_file.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/language_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/groups/text_group.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kLogitsHelp = {
    "MODEL (--tokens 1,2,3 | -p TEXT) -o OUT.npy [OPTIONS]",
    "Writes the logits that follow each token as float32 [tokens, vocabulary] in NumPy's format.\n"
    "Token ids are taken as given, and text as it is: no BOS is added. The KV cache is f32 here\n"
    "unless asked otherwise, for exact comparisons.",
    "  kvant logits model.gguf --tokens 1,403,407 -o logits.npy\n"
    "  kvant logits model.gguf -p \"Once upon a time\" --last -o next.npy\n"
    "  kvant logits model.gguf --tokens 1,403,407 --no-kv-cache -o oracle.npy\n"
    "  kvant logits whisper.gguf --frames mel.npy --tokens 50258,50259 -o logits.npy\n"
    "  kvant logits t5encoder.gguf --source \"A text\" -o rows.npy\n",
};

struct LogitsOptions {
  ModelGroup model;
  TextGroup text;
  SessionGroup session;
  std::optional<std::string> tokens;
  std::optional<std::string> source;
  std::optional<std::string> source_tokens;
  std::optional<std::string> frames;
  LanguageNames languages;
  std::optional<std::string> output;
  bool encoded = false;
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

// The options that name a source, of which one is given at most.
struct SourceOption {
  const char* name;
  const std::optional<std::string>& value;
};

// Encodes the source that the options name. A model without an encoder must have none.
Result<std::optional<SourceId>> EncodeSource(const LogitsOptions& options, Runner& runner,
                                             const SourceOptions& encode = {}) {
  const Model& model = runner.model();
  const SourceOption all[] = {{"--source", options.source},
                              {"--source-tokens", options.source_tokens},
                              {"--frames", options.frames}};
  const auto given = [](const SourceOption& option) { return option.value.has_value(); };
  const auto count = std::ranges::count_if(all, given);
  if (!model.has_encoder()) {
    if (count == 0) return std::optional<SourceId>();
    return MakeError(ErrorCode::kInvalid, "{}: the model reads no source, found {}",
                     model.file().path(), std::ranges::find_if(all, given)->name);
  }
  if (const auto shape = model.frame_shape(); shape && (count != 1 || !options.frames)) {
    return MakeError(ErrorCode::kInvalid, "{}: the model reads {}: give them by --frames alone",
                     model.file().path(), FramesText(*shape));
  }
  if (count != 1) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: the model reads a source: give either --source or --source-tokens",
                     model.file().path());
  }
  std::optional<SourceId> source;
  if (options.frames.has_value()) {
    KVANT_ASSIGN(const auto frames, ReadFrames(*options.frames, model));
    KVANT_ASSIGN(source, runner.EncodeFrames(frames, encode));
    return source;
  }
  std::vector<TokenId> tokens;
  if (options.source.has_value()) {
    KVANT_ASSIGN(const Translation translation, MakeTranslation(model, options.languages));
    KVANT_ASSIGN(tokens, EncodeSource(model, translation, *options.source));
  } else {
    KVANT_ASSIGN(tokens, ParseTokens("--source-tokens", *options.source_tokens));
  }
  KVANT_ASSIGN(source, runner.Encode(tokens, encode));
  return source;
}

// Writes the encoder's output for the source, [positions, dim].
Status WriteEncoded(const LogitsOptions& options, const std::shared_ptr<const Model>& model) {
  if (!model->has_encoder()) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: --encoded: expected a model with an encoder, found one without",
                     model->file().path());
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  session_options.sequences = 1;
  KVANT_ASSIGN(const auto runner, options.session.OpenRunner(model, session_options));
  const int64_t columns = model->spec().encoder->stack.dim;
  const auto write = [&](std::span<const float> rows) -> Status {
    KVANT_ASSIGN(auto file,
                 formats::NpyWriter::Create(*options.output, std::ssize(rows) / columns, columns));
    KVANT_TRY(file.WriteRows(rows));
    return file.Finish();
  };
  const auto source = EncodeSource(options, *runner, {.cancel = &CancelFlag(), .rows = write});
  return source.ok() ? Status() : source.error();
}

Status WriteLogits(const LogitsOptions& options, const Positionals& positionals) {
  KVANT_ASSIGN(const auto text, options.text.Read(positionals));
  const bool none = !text.has_value() && !options.tokens.has_value();
  if (text.has_value() && options.tokens.has_value()) {
    return MakeError(ErrorCode::kInvalid, "give either --tokens or a text by -p, -f or -");
  }
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  if (model->is_embedder()) return model->CheckDecoder();
  const bool encoded = options.encoded || !model->has_decoder();
  if (encoded && none) return WriteEncoded(options, model);
  if (encoded || none) {
    return MakeError(ErrorCode::kInvalid, "{}",
                     encoded ? "what an encoder gives follows from its source alone: give neither "
                               "--tokens nor a text by -p, -f or -"
                             : "give either --tokens or a text by -p, -f or -");
  }
  KVANT_ASSIGN(const auto tokens, Tokens(options, text, model->tokenizer()));
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (session_options.context == 0) session_options.context = count;
  KVANT_ASSIGN(const auto session, options.session.Open(model, session_options));
  KVANT_ASSIGN(const auto source, EncodeSource(options, session->runner()));
  if (source.has_value()) KVANT_TRY(session->runner().SetSource(session->sequence(), *source));
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
  list.Text(
      "--source", &options.source, "TEXT",
      "For models with an encoder: the source text; the model's special tokens are put around it");
  list.Text("--source-tokens", &options.source_tokens, "IDS",
            "For models with an encoder: the source as token ids, which are taken as given");
  list.Text("--frames", &options.frames, "FILE.npy",
            "For encoders that read sound, such as Whisper's: the features, float32, float16 or "
            "float64 [values of a frame, frames]; silence follows fewer frames");
  AddLanguageOptions(list, options.languages);
  options.text.Add(list, "Input", "text");
  list.Group("Output");
  list.Text("-o,--output", &options.output, "OUT.npy", "Write the logits to this file");
  list.Flag("--encoded", &options.encoded,
            "Write the encoder's output for the source, [positions, dim], instead of logits; the "
            "default for models that are an encoder alone");
  list.Flag("--last", &options.last, "Write only the last token's logits, [1, vocabulary]");
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
