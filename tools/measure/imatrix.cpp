// kvant imatrix: collects an importance matrix over a text, merges several, shows one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>
#include <vector>

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/evaluate/importance.h"
#include "kvant/embed.h"
#include "tools/commands.h"
#include "tools/options/evaluation_options.h"
#include "tools/options/groups/idle_options.h"

namespace kvant::tools {
namespace {

constexpr HelpText kImatrixHelp = {
    "MODEL TEXT -o FILE [OPTIONS]",
    "Writes an importance matrix: it tells how much a text uses each column of every weight\n"
    "matrix. 'kvant quantize --imatrix' and llama-quantize read it and spend their bits\n"
    "accordingly. The text is cut into windows as llama-imatrix does; for an embedding model each\n"
    "line is a text. The file has the GGUF form if its name ends in .gguf, and otherwise the dat\n"
    "form that llama.cpp of early 2025 and ik_llama.cpp read. --merge adds earlier files to it "
    "and\n"
    "needs neither MODEL nor TEXT; --show prints what a file holds.",
    "  kvant imatrix model-f16.gguf text.txt -o model.imatrix\n"
    "  kvant imatrix model-f16.gguf text.txt -o imatrix.gguf --chunks 100\n"
    "  kvant imatrix --merge a.imatrix --merge b.gguf -o both.imatrix\n"
    "  kvant imatrix --show model.imatrix\n",
};

constexpr int64_t kImatrixWindowMin = 16;
constexpr int64_t kImatrixWindowMax = int64_t{1} << 24;

struct ImatrixOptions {
  EvaluationGroup evaluation;
  int64_t context = formats::kImatrixChunkRows;
  bool process_output = false;
  std::optional<std::string> output;
  std::optional<std::string> form;
  std::vector<std::string> merge;
  std::optional<std::string> show;
};

Result<formats::ImatrixForm> OutputForm(const ImatrixOptions& options) {
  if (options.form == "gguf") return formats::ImatrixForm::kGguf;
  if (options.form == "dat") return formats::ImatrixForm::kDat;
  if (options.form.has_value()) {
    return MakeError(ErrorCode::kInvalid, "--output-format: expected gguf or dat, found '{}'",
                     *options.form);
  }
  return options.output->ends_with(".gguf") ? formats::ImatrixForm::kGguf
                                            : formats::ImatrixForm::kDat;
}

// The lines of a file that are not empty, as an embedding model reads them.
Result<std::vector<EmbedTokens>> TextsOf(const std::string& path, const Embedder& embedder) {
  KVANT_ASSIGN(const std::string content, ReadText(path));
  std::vector<EmbedTokens> texts;
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    KVANT_ASSIGN(texts.emplace_back(), embedder.Tokens(line, {.too_long = TooLong::kCut}));
  }
  if (!texts.empty()) return texts;
  return MakeError(ErrorCode::kInvalid, "{}: expected a text a line, found none", path);
}

Status CollectFromTexts(const ImatrixOptions& options, const std::shared_ptr<const Model>& model,
                        const std::string& text_path, evaluate::ImportanceCollector& collector) {
  EmbedOptions embed_options;
  KVANT_ASSIGN(const SessionOptions threads, options.evaluation.session.Options());
  embed_options.threads = threads.threads;
  embed_options.placement = threads.placement;
  if (!model->spec().embedding.pooling) embed_options.pooling = Pooling::kNone;
  KVANT_ASSIGN(const auto embedder, Embedder::Create(model, embed_options));
  KVANT_ASSIGN(std::vector<EmbedTokens> texts, TextsOf(text_path, *embedder));
  if (options.evaluation.chunks) {
    texts.resize(std::min(texts.size(), static_cast<size_t>(*options.evaluation.chunks)));
  }
  EvaluationProgress progress("texts", std::ssize(texts));
  int64_t tokens = 0;
  return collector.RunTexts(*embedder, texts, [&](int64_t done) {
    tokens += std::ssize(texts[static_cast<size_t>(done - 1)].ids);
    return progress.Update(done, tokens, "");
  });
}

Status CollectFromWindows(const ImatrixOptions& options, const std::shared_ptr<const Model>& model,
                          const std::string& text_path, evaluate::ImportanceCollector& collector) {
  KVANT_ASSIGN(auto tokens, TokenizeText(text_path, model->tokenizer()));
  KVANT_ASSIGN(const auto windows,
               evaluate::Windows::Cut(
                   std::move(tokens), model->tokenizer().special(),
                   {.size = options.context, .stride = 0, .count_max = options.evaluation.chunks}));
  KVANT_ASSIGN(const auto session_options,
               WindowSessionOptions(options.evaluation.session, windows.size()));
  KVANT_ASSIGN(const auto session, options.evaluation.session.Open(model, session_options));
  EvaluationProgress progress("windows", windows.count());
  return collector.Run(*session, windows, [&](int64_t done) {
    return progress.Update(done, done * windows.size(), "");
  });
}

Result<formats::Imatrix> Collect(const ImatrixOptions& options, const std::string& model_path,
                                 const std::string& text_path) {
  evaluate::ImportanceCollector collector(
      options.process_output ? evaluate::OutputMatrix::kWatched : evaluate::OutputMatrix::kSkipped);
  ModelOptions model_options = options.evaluation.model.Options();
  model_options.observer = &collector;
  KVANT_ASSIGN(const auto model, Model::Open(model_path, model_options));
  KVANT_TRY(model->is_embedder() ? CollectFromTexts(options, model, text_path, collector)
                                 : CollectFromWindows(options, model, text_path, collector));
  KVANT_ASSIGN(formats::Imatrix imatrix, collector.Take());
  imatrix.datasets.push_back(text_path);
  return imatrix;
}

Status Make(const ImatrixOptions& options, const std::string& model_path,
            const std::optional<std::string>& text_path) {
  KVANT_ASSIGN(const formats::ImatrixForm form, OutputForm(options));
  // Files to merge are read first, so that a wrong one is known before the long part.
  formats::Imatrix sum;
  for (size_t i = 0; i < options.merge.size(); ++i) {
    KVANT_ASSIGN(formats::Imatrix read, formats::ReadImatrix(options.merge[i]));
    if (i == 0) {
      sum = std::move(read);
      continue;
    }
    const Status merged = sum.Merge(read);
    if (!merged.ok()) {
      return MakeError(ErrorCode::kInvalid, "{}: {}", options.merge[i], merged.error().message);
    }
  }
  if (text_path.has_value()) {
    KVANT_ASSIGN(formats::Imatrix collected, Collect(options, model_path, *text_path));
    if (options.merge.empty()) {
      sum = std::move(collected);
    } else {
      KVANT_TRY(sum.Merge(collected));
    }
  }
  return formats::WriteImatrix(sum, *options.output, form);
}

std::string ChunksText(const formats::Imatrix& imatrix) {
  if (imatrix.rows_known) {
    return fmt::format("{} of {} tokens", imatrix.chunk_count, imatrix.chunk_size);
  }
  return imatrix.chunk_count == 0 ? "not named in the file"
                                  : fmt::format("{}", imatrix.chunk_count);
}

Status Show(const std::string& path, ResultStream& out) {
  KVANT_ASSIGN(const formats::Imatrix imatrix, formats::ReadImatrix(path));
  // The dat form holds neither the tokens of a chunk nor those of an entry, but calls.
  const bool tokens = imatrix.rows_known;
  std::string text =
      fmt::format("entries   {}\nchunks    {}\n", imatrix.entries.size(), ChunksText(imatrix));
  for (const std::string& dataset : imatrix.datasets) {
    text += fmt::format("dataset   {}\n", Visible(dataset));
  }
  text += fmt::format("\n{:<40} {:>8} {:>9} {:>10} {:>11} {:>11} {:>11}\n", "tensor", "columns",
                      "matrices", tokens ? "tokens" : "calls", "mean", "median", "max");
  for (const auto& [name, entry] : imatrix.entries) {
    const size_t matrices = entry.counts.size();
    const size_t columns = entry.sums.size() / matrices;
    std::vector<double> means;
    for (size_t i = 0; i < entry.sums.size(); ++i) {
      const int64_t count = entry.counts[i / columns];
      if (count > 0) means.push_back(entry.sums[i] / static_cast<double>(count));
    }
    if (means.empty()) means.push_back(0);
    double sum = 0;
    for (const double mean : means) sum += mean;
    std::sort(means.begin(), means.end());
    const int64_t count = *std::max_element(entry.counts.begin(), entry.counts.end());
    text +=
        fmt::format("{:<40} {:>8} {:>9} {:>10} {:>11.5g} {:>11.5g} {:>11.5g}\n", Visible(name),
                    columns, matrices, tokens ? count : count / formats::kImatrixChunkRows,
                    sum / static_cast<double>(means.size()), means[means.size() / 2], means.back());
  }
  out.Write(text);
  return {};
}

int Run(const ImatrixOptions& options, const CommandLine& line) {
  std::string model_path;
  std::optional<std::string> text_path;
  const bool collects = !line.positionals().empty() || options.merge.empty() ||
                        options.evaluation.text_option.has_value();
  if (collects) {
    if (const auto code = options.evaluation.TakeFiles(line, &model_path, &text_path)) return *code;
    if (!text_path.has_value()) {
      return line.UsageError(
          "no text given: name a file, as in 'kvant imatrix model.gguf text.txt'");
    }
  }
  if (!options.output.has_value()) return line.UsageError("no output file given: use -o FILE");
  std::error_code error;
  if (std::filesystem::equivalent(*options.output, model_path, error)) {
    return line.UsageError("-o names the model itself");
  }
  const Status status = Make(options, model_path, text_path);
  return status.ok() ? kExitDone : Fail(status.error());
}

}  // namespace

int ImatrixCommand(CommandLine& line) {
  ImatrixOptions options;
  OptionList list;
  list.Group("Output");
  list.Text("-o,--output", &options.output, "FILE", "Write the importance matrix to this file");
  list.Text("--output-format", &options.form, "FORM", "gguf or dat",
            "by the name: gguf if it ends in .gguf");
  list.Texts("--merge,--in-file", &options.merge, "FILE",
             "Add this importance matrix to the result; may be repeated");
  list.Text("--show", &options.show, "FILE", "Print what is in this importance matrix");
  list.Group("Text");
  list.Integer("-c,--ctx-size", &options.context, {kImatrixWindowMin, kImatrixWindowMax},
               "Tokens of a window");
  list.Flag("--process-output", &options.process_output,
            "Collect for output.weight, too; it is costly and rarely helps");
  options.evaluation.Add(list);
  list.IdleFlag("--no-ppl", "no perplexity is computed");
  AddIdleOptions(list);
  if (const auto code = line.Parse(list, kImatrixHelp)) return *code;
  if (!options.show.has_value()) return Run(options, line);
  if (options.output.has_value() || !options.merge.empty() || !line.positionals().empty()) {
    return line.UsageError("--show goes with no other file");
  }
  ResultStream out;
  const Status status = Show(*options.show, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
