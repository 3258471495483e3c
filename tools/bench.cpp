// kvant bench: tokens per second of prefill and decode, in the manner and with the field names of
// llama-bench, so that scripts made for it keep working.
//
// Every test starts from an empty sequence, runs once as a warm-up and then -r times. Tokens are
// random (the same ones every time), logits are computed as in a real run, nothing is sampled.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/version.h"
#include "engine/generate/random.h"
#include "tools/commands.h"
#include "tools/common_options.h"
#include "tools/console.h"
#include "tools/model_facts.h"

namespace kvant::tools {
namespace {

constexpr HelpText kHelp = {
    "MODEL [-p N] [-n N] [-r N] [OPTIONS]",
    "Measures how many tokens per second the model processes (prefill) and generates (decode): "
    "one\n"
    "row per test with the mean and standard deviation of the repetitions. JSON has the field "
    "names\n"
    "of llama-bench.",
    "  kvant bench model.gguf\n"
    "  kvant bench model.gguf -p 512 -n 128 -r 5 -t 2\n"
    "  kvant bench model.gguf -p 0 -n 64 -o json | jq '.[].avg_ts'\n",
};

struct Options {
  ModelGroup model;
  SessionGroup session;
  int64_t prompt_tokens = 512;
  int64_t generated_tokens = 128;
  int64_t repetitions = 5;
  std::string format = "md";
  bool quiet = false;
};

// One row: prefill of n_prompt tokens, or decode of n_gen.
struct Test {
  int64_t n_prompt = 0;
  int64_t n_gen = 0;
  std::string time;  // RFC 3339, when it began
  std::vector<double> seconds;

  std::string Name() const {
    return n_gen == 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
  }
  std::vector<double> Speeds() const {
    std::vector<double> speeds;
    for (const double s : seconds) speeds.push_back(static_cast<double>(n_prompt + n_gen) / s);
    return speeds;
  }
};

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of a sample; 0 for a single value.
double StandardDeviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%FT%TZ", &utc);
  return text;
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

const char* KvTypeName(cpu::KvElement element) {
  return element == cpu::KvElement::kF32 ? "f32" : "f16";
}

class Bench {
 public:
  Bench(const Model& model, Session& session) : session_(session) {
    const SpecialTokens& special = model.tokenizer().special();
    Xoshiro256 random(1);
    tokens_.resize(static_cast<size_t>(session.context()));
    for (TokenId& id : tokens_) {
      id = static_cast<TokenId>(random.Below(static_cast<uint64_t>(model.vocab_size())));
    }
    if (special.add_bos && special.bos.has_value()) tokens_[0] = *special.bos;
  }

  Status RunOnce(const Test& test, double* seconds) {
    KVANT_TRY(session_.Rewind(0));
    const auto start = std::chrono::steady_clock::now();
    const std::span<const TokenId> tokens(tokens_);
    if (test.n_gen == 0) {
      KVANT_TRY(session_.Append(tokens.first(static_cast<size_t>(test.n_prompt))));
    }
    for (int64_t i = 0; i < test.n_gen; ++i) {
      KVANT_TRY(session_.Append(tokens.subspan(static_cast<size_t>(i), 1)));
    }
    *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {};
  }

 private:
  Session& session_;
  std::vector<TokenId> tokens_;
};

nlohmann::ordered_json ToJson(const Test& test, const std::string& path, const Model& model,
                              const SessionOptions& options, int threads, bool mapped) {
  const ModelFacts facts = GatherFacts(model.file());
  std::vector<double> nanoseconds;
  std::vector<uint64_t> samples_ns;
  for (const double s : test.seconds) {
    nanoseconds.push_back(s * 1e9);
    samples_ns.push_back(static_cast<uint64_t>(std::llround(s * 1e9)));
  }
  nlohmann::ordered_json out;
  out["build_commit"] = Version().commit;
  out["build_number"] = 0;
  out["cpu_info"] = CpuName();
  out["gpu_info"] = "";
  out["backends"] = "CPU";
  out["isa"] = model.kernels().isa;
  out["model_filename"] = path;
  out["model_type"] = facts.description;
  out["model_size"] = facts.tensor_bytes;
  out["model_n_params"] = facts.parameters;
  out["n_batch"] = options.chunk;
  out["n_ubatch"] = options.chunk;
  out["n_threads"] = threads;
  out["type_k"] = KvTypeName(options.k_type);
  out["type_v"] = KvTypeName(options.v_type);
  out["n_gpu_layers"] = 0;
  out["use_mmap"] = mapped;
  out["n_prompt"] = test.n_prompt;
  out["n_gen"] = test.n_gen;
  out["n_depth"] = 0;
  out["test_time"] = test.time;
  out["avg_ns"] = std::llround(Mean(nanoseconds));
  out["stddev_ns"] = std::llround(StandardDeviation(nanoseconds));
  out["avg_ts"] = Mean(test.Speeds());
  out["stddev_ts"] = StandardDeviation(test.Speeds());
  out["samples_ns"] = samples_ns;
  out["samples_ts"] = test.Speeds();
  return out;
}

std::string ToMarkdown(const nlohmann::ordered_json& rows, const std::vector<Test>& tests) {
  std::string out =
      fmt::format("| {:<30} | {:>10} | {:>8} | {:>11} | {:>7} | {:>6} | {:>6} | {:>8} | {:>18} |\n",
                  "model", "size", "params", "isa", "threads", "type_k", "type_v", "test", "t/s");
  out += fmt::format(
      "| {:-<30} | {:->9}: | {:->7}: | {:->10}: | {:->6}: | {:->5}: | {:->5}: | {:->7}: | {:->17}: "
      "|\n",
      "", "", "", "", "", "", "", "", "");
  for (size_t i = 0; i < tests.size(); ++i) {
    const auto& row = rows[i];
    out += fmt::format(
        "| {:<30} | {:>10} | {:>8} | {:>11} | {:>7} | {:>6} | {:>6} | {:>8} | {:>18} |\n",
        row["model_type"].get<std::string>(), SizeText(row["model_size"].get<uint64_t>()),
        CountText(row["model_n_params"].get<uint64_t>()), row["isa"].get<std::string>(),
        row["n_threads"].get<int>(), row["type_k"].get<std::string>(),
        row["type_v"].get<std::string>(), tests[i].Name(),
        fmt::format("{:.2f} ± {:.2f}", row["avg_ts"].get<double>(),
                    row["stddev_ts"].get<double>()));
  }
  return out;
}

Status RunBench(const Options& options, const std::string& path, ResultStream& out) {
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  session_options.context = std::max(options.prompt_tokens, options.generated_tokens);
  StatusLine status(!options.quiet);
  status.Set(fmt::format("loading {}", path));
  KVANT_ASSIGN(const auto model, Model::Open(path, options.model.Options()));
  KVANT_ASSIGN(const auto session, Session::Create(model, session_options));
  std::vector<Test> tests;
  if (options.prompt_tokens > 0) tests.push_back({options.prompt_tokens, 0, "", {}});
  if (options.generated_tokens > 0) tests.push_back({0, options.generated_tokens, "", {}});
  Bench bench(*model, *session);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (Test& test : tests) {
    test.time = Now();
    double seconds = 0;
    status.Set(fmt::format("{}: warm-up", test.Name()));
    // One generated token warms decode up, since the weights are the same for every token.
    KVANT_TRY(bench.RunOnce({test.n_prompt, std::min<int64_t>(test.n_gen, 1), "", {}}, &seconds));
    for (int64_t i = 0; i < options.repetitions; ++i) {
      status.Set(fmt::format("{}: {} of {}", test.Name(), i + 1, options.repetitions));
      KVANT_TRY(bench.RunOnce(test, &seconds));
      test.seconds.push_back(seconds);
    }
    rows.push_back(
        ToJson(test, path, *model, session_options, session->threads(), !options.model.no_mmap));
  }
  status.Clear();
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  out.Write(options.format == "json" ? rows.dump(2, ' ', false, replace) + "\n"
                                     : ToMarkdown(rows, tests));
  return {};
}

void AddOptions(OptionList& list, Options& options, std::optional<std::string>* format) {
  list.Group("Tests");
  list.Integer("-p,--n-prompt", &options.prompt_tokens, {0, 1 << 24},
               "Tokens of the prefill test; 0 drops it");
  list.Integer("-n,--n-gen", &options.generated_tokens, {0, 1 << 24},
               "Tokens of the decode test; 0 drops it");
  list.Integer("-r,--repetitions", &options.repetitions, {1, 10000}, "Runs of each test");
  list.Group("Output");
  list.Text("-o,--output", format, "md|json", "Format of the result", options.format);
  list.Flag("-q,--quiet", &options.quiet, "No progress on the terminal");
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.AddThreads(list);
  options.session.AddKvTypes(list);
  options.session.AddChunk(list);
  options.session.AddNoKvCache(list);
  AddIgnoredOptions(list);
}

}  // namespace

int BenchCommand(CommandLine& line) {
  Options options;
  std::optional<std::string> format;
  OptionList list;
  AddOptions(list, options, &format);
  if (const auto code = line.Parse(list, kHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired, StdinUse::kNone,
                                        &positionals)) {
    return *code;
  }
  options.format = format.value_or(options.format);
  if (options.format != "md" && options.format != "json") {
    return line.UsageError(
        fmt::format("--output: expected md or json, found '{}'", options.format));
  }
  if (options.prompt_tokens == 0 && options.generated_tokens == 0) {
    return line.UsageError("-p 0 and -n 0 leave no test to run");
  }
  ResultStream out;
  const Status status = RunBench(options, positionals.model, out);
  if (!status.ok()) return Fail(status.error());
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
