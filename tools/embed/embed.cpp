// kvant embed: vectors of texts.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "kvant/embed.h"
#include "tools/commands.h"
#include "tools/embed/embed_group.h"
#include "tools/embed/text_input.h"
#include "tools/embed/vector_output.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kEmbedHelp = {
    "MODEL (-p TEXT | -f FILE | --jsonl FILE | -) [OPTIONS]",
    "Turns texts into vectors, with an embedding model as its file says: how rows are pooled into\n"
    "one vector, and whether tokens see those after them. Any other model needs --pooling. "
    "Vectors\n"
    "have the length 1 unless asked otherwise, so that their products are cosines. A vector "
    "depends\n"
    "neither on the other texts nor on the number of threads.",
    "  kvant embed minilm -p \"hello\"\n"
    "  kvant embed minilm -f lines.txt --format npy -o vectors.npy\n"
    "  kvant embed model.gguf --jsonl texts.jsonl --prompt-name query --dimensions 256\n"
    "  kvant embed qwen3.gguf --pooling last -p \"hello\"\n",
};

struct EmbedCommandOptions {
  EmbedGroup group;
  TextInput input;
  std::optional<Pooling> pooling;
  std::optional<VectorFormat> format;
  std::optional<std::string> output;
  std::optional<std::string> prompt_name;
  std::optional<std::string> prefix;
  VectorOptions vectors;
  float normalize = 2;
};

Status TakePooling(const std::string& text, std::optional<Pooling>* pooling) {
  *pooling = ParsePooling(text);
  if (pooling->has_value() && *pooling != Pooling::kRank) return {};
  return MakeError(ErrorCode::kInvalid, "expected none, mean, cls or last, found '{}'{}",
                   Visible(text), text == "rank" ? ", which 'kvant rerank' does" : "");
}

Result<std::string> PromptOf(const EmbedCommandOptions& options, const Embedder& embedder) {
  if (!options.prefix.has_value()) {
    KVANT_ASSIGN(const std::string_view text,
                 embedder.PromptText(options.prompt_name.value_or("")));
    return std::string(text);
  }
  if (!options.prompt_name.has_value()) return *options.prefix;
  return MakeError(ErrorCode::kInvalid, "--prompt-name and --prefix exclude each other");
}

Status WriteVectors(const EmbedCommandOptions& options, const std::vector<InputText>& texts,
                    Embedder& embedder, VectorOutput& output, std::span<const EmbedTokens> tokens) {
  const auto vectors =
      embedder.pooling() == Pooling::kNone ? VectorsOfText::kOnePerToken : VectorsOfText::kOne;
  StatusLine status(options.output.has_value() ? StatusUse::kShown : StatusUse::kHidden);
  for (size_t first = 0; first < tokens.size(); first += kTextsPerCall) {
    const size_t count = std::min(kTextsPerCall, tokens.size() - first);
    KVANT_ASSIGN(const Embeddings made,
                 embedder.Embed(tokens.subspan(first, count), options.vectors));
    for (size_t i = 0; i < count; ++i) {
      KVANT_TRY(output.Write(static_cast<int64_t>(first + i), texts[first + i].id,
                             made.RowsOf(static_cast<int64_t>(i)), vectors));
    }
    status.Set(fmt::format("{} of {}", first + count, Counted(tokens.size(), "text")));
  }
  return output.Finish();
}

Result<int> Embed(EmbedCommandOptions& options, const Positionals& positionals) {
  options.vectors.normalize = static_cast<double>(options.normalize);
  KVANT_ASSIGN(const auto texts, options.input.Read(positionals));
  KVANT_ASSIGN(const auto embedder, options.group.Open(positionals.model, options.pooling));
  KVANT_ASSIGN(const std::string prompt, PromptOf(options, *embedder));
  std::vector<EmbedTokens> tokens;
  int64_t rows = 0;
  for (const InputText& text : texts) {
    auto ids = embedder->Tokens(text.text, {prompt, options.group.too_long()});
    if (!ids.ok()) return At(text, ids.error());
    rows += embedder->pooling() == Pooling::kNone ? std::ssize(ids->ids) : 1;
    tokens.push_back(std::move(*ids));
  }
  const int64_t columns =
      options.vectors.dimensions == 0 ? embedder->dim() : options.vectors.dimensions;
  // Faults of the options are said before a file is begun.
  KVANT_TRY(embedder->Embed({}, options.vectors));
  KVANT_ASSIGN(auto output, VectorOutput::Create(options.format.value_or(VectorFormat::kJsonl),
                                                 options.output.value_or(""), rows, columns));
  KVANT_TRY(WriteVectors(options, texts, *embedder, output, tokens));
  return output.stream().Finish(kExitDone);
}

}  // namespace

int EmbedCommand(CommandLine& line) {
  EmbedCommandOptions options;
  OptionList list;
  options.input.Add(list, "texts", TextInput::Texts::kAccepted);
  list.Text("--prompt-name", &options.prompt_name, "NAME",
            "Put the prompt of this name, which the file has, in front of each text",
            "the file's default, if it has one");
  list.Text("--prefix", &options.prefix, "TEXT", "Put this in front of each text instead");
  list.Group("Output");
  const auto take_format = [&](const std::string& text) {
    return ParseVectorFormat(text, &options.format);
  };
  list.Checked(
      "--format", take_format, "npy|jsonl|raw",
      "npy: a float32 array [texts, dimensions]; jsonl: a line of JSON for each text; raw: "
      "the numbers alone, as little-endian float32",
      "jsonl");
  list.Values("--format", {"npy", "jsonl", "raw"});
  list.Text("-o,--output", &options.output, "FILE", "Write to a file", "standard output");
  list.Group("Vectors");
  const auto take_pooling = [&](const std::string& text) {
    return TakePooling(text, &options.pooling);
  };
  list.Checked("--pooling", take_pooling, "none|mean|cls|last",
               "How the rows of a text become a vector: the mean, the first or the last one; none "
               "gives a row for each token",
               "as the file says");
  list.Values("--pooling", {"none", "mean", "cls", "last"});
  list.Real("--normalize,--embd-normalize", &options.normalize,
            {-1, std::numeric_limits<float>::max()},
            "Divide by a norm: 2 the usual one, 1 the sum of magnitudes, P that of powers of P; 0 "
            "scales the largest to 32760, -1 does nothing");
  list.Integer("--dimensions", &options.vectors.dimensions,
               {0, std::numeric_limits<int32_t>::max()},
               "Keep the first N numbers, for models made for it (Matryoshka); 0 keeps all");
  options.group.Add(list);
  if (const auto code = line.Parse(list, kEmbedHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.group.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  const auto code = Embed(options, positionals);
  return code.ok() ? *code : Fail(code.error());
}

}  // namespace kvant::tools
