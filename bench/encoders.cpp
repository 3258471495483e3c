// Times kvant's encoders of blocks and those of other engines' libraries, alternately, and compares
// the errors of the blocks:
//
//     encoders [--isa ISA] [--rounds N] [--values MODEL.gguf] [--peer LIBRARY.so]... TYPE...
//
// The cases are eight rows of 2048 values, normal and Laplace, each without and with importances,
// which are squares of normal numbers; with a model also the first 64 such rows of the matrices of
// its layers. A type's peer is the first library that has its encoder, quantize_TYPE of ggml. In
// cases without importances, the peer gets importances of one for the types of IQ1 and IQ2: their
// encoders insist on importances or do worse without. Prints a table in Markdown: millions of
// values per second of one thread's processor time (the median of the rounds), the ratios for each
// case, and the root mean square errors, weighted where there are importances, with their ratios.
// bench/compare_encoders makes the libraries.
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/blocks.h"
#include "cpu/kernels/table.h"
#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant {
namespace {

constexpr int64_t kCols = 2048;
constexpr int64_t kRandomRows = 8;
constexpr int64_t kModelRows = 64;

// size_t quantize_TYPE(values, blocks, rows, cols, importance), then a pointer that only later
// versions of ik_llama.cpp have, null.
using PeerEncoder = size_t (*)(const float*, void*, int64_t, int64_t, const float*, const void*);

struct Options {
  std::string_view isa;
  int rounds = 9;
  std::string model;
  std::vector<std::string> peers;
  std::vector<const quant::FormatTraits*> formats;
};

struct Case {
  std::string name;
  std::vector<float> values;      // [rows][kCols]
  std::vector<float> importance;  // [kCols], or empty

  int64_t rows() const { return static_cast<int64_t>(values.size()) / kCols; }
};

// The speed and the error of an encoder on one case.
struct Outcome {
  double speed = 0;  // values per second
  double error = 0;
};

double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<float> Importances(std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> importance(kCols);
  for (float& weight : importance) {
    const float root = normal(random);
    weight = root * root;
  }
  return importance;
}

void AddRandomCases(std::vector<Case>& cases) {
  for (const bool is_laplace : {false, true}) {
    for (const bool is_weighted : {false, true}) {
      std::mt19937 random(static_cast<unsigned>(7 + cases.size()));
      std::normal_distribution<float> normal(0, 0.02f);
      std::exponential_distribution<float> exponential(1 / 0.02f);
      Case made{is_laplace ? "Laplace" : "normal", std::vector<float>(kRandomRows * kCols), {}};
      for (float& value : made.values) {
        value = !is_laplace         ? normal(random)
                : random() % 2 != 0 ? exponential(random)
                                    : -exponential(random);
      }
      if (is_weighted) made.importance = Importances(random);
      cases.push_back(std::move(made));
    }
  }
}

// The values of a model's matrices, one after the other, as rows of kCols.
Status AddModelCases(const std::string& path, std::vector<Case>& cases) {
  KVANT_ASSIGN(const formats::GgufFile file, formats::GgufFile::Open(path));
  constexpr auto kWanted = static_cast<size_t>(kModelRows * kCols);
  std::vector<float> values;
  for (const formats::GgufTensor& tensor : file.tensors()) {
    if (!tensor.name.starts_with("blk.") || tensor.n_dims != 2) continue;
    const size_t begin = values.size();
    values.resize(begin + static_cast<size_t>(tensor.n_values()));
    quant::DecodeRows(*tensor.format, tensor.data, tensor.rows(), tensor.dims[0],
                      values.data() + begin);
    if (values.size() >= kWanted) break;
  }
  values.resize(std::min(kWanted, values.size() / kCols * kCols));
  if (values.empty()) {
    return Error{ErrorCode::kInvalid, fmt::format("{}: the matrices of the layers have less than "
                                                  "{} values",
                                                  path, kCols)};
  }
  std::mt19937 random(11);
  cases.push_back({"model", values, {}});
  cases.push_back({"model", std::move(values), Importances(random)});
  return {};
}

// ---- Other engines -----------------------------------------------------------------------------

Result<std::vector<void*>> OpenPeers(const std::vector<std::string>& paths) {
  std::vector<void*> peers;
  for (const std::string& path : paths) {
    // A name without a folder would be looked for among the system's libraries.
    const std::string absolute = std::filesystem::absolute(path).string();
    void* library = dlopen(absolute.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) return Error{ErrorCode::kInvalid, dlerror()};
    // ggml_init fills tables of halves, ggml_quantize_init those of the grids.
    struct Memory {
      size_t bytes;
      void* buffer;
      bool no_alloc;
    };
    using Init = void* (*)(Memory);
    using InitGrid = void (*)(int);
    if (auto init = reinterpret_cast<Init>(dlsym(library, "ggml_init")))
      init({1 << 20, nullptr, true});
    if (auto init = reinterpret_cast<InitGrid>(dlsym(library, "ggml_quantize_init"))) {
      for (const int type : {16, 17, 18, 19, 21, 22, 29}) init(type);
    }
    peers.push_back(library);
  }
  return peers;
}

PeerEncoder FindPeer(const std::vector<void*>& peers, const quant::FormatTraits& format) {
  std::string lower = format.name;
  for (char& c : lower) c = static_cast<char>(std::tolower(c));
  std::string mixed = lower;  // q4_K, q8_KV
  if (mixed.starts_with("q")) {
    for (size_t i = mixed.find('_'); i < mixed.size(); ++i) {
      mixed[i] = static_cast<char>(std::toupper(mixed[i]));
    }
  }
  for (void* library : peers) {
    for (const std::string& name : {lower, mixed}) {
      void* found = dlsym(library, ("quantize_" + name).c_str());
      if (found != nullptr) return reinterpret_cast<PeerEncoder>(found);
    }
  }
  return nullptr;
}

// ---- One case of one type ----------------------------------------------------------------------

double RelativeError(const quant::FormatTraits& format, const Case& x, const std::byte* blocks) {
  std::vector<float> decoded(x.values.size());
  quant::DecodeRows(format, blocks, x.rows(), kCols, decoded.data());
  double error = 0;
  double all = 0;
  for (size_t i = 0; i < decoded.size(); ++i) {
    const double weight = x.importance.empty() ? 1 : double{x.importance[i % kCols]};
    const double difference = double{decoded[i]} - double{x.values[i]};
    error += weight * difference * difference;
    all += weight * double{x.values[i]} * double{x.values[i]};
  }
  return std::sqrt(error / all);
}

// Runs kvant's encoder and the peer's, where there is one, alternately for `rounds` rounds.
std::vector<Outcome> Measure(const quant::FormatTraits& format, cpu::EncodeFunction encode,
                             PeerEncoder peer, const Case& x, int rounds) {
  // The peer may write whole vectors.
  constexpr size_t kSpare = 4096;
  const auto bytes = static_cast<size_t>(x.rows() * format.row_bytes(kCols)) + kSpare;
  std::vector<std::byte> blocks[2] = {std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
  const std::string_view name = format.name;
  const bool needs_some = name.starts_with("IQ1") || name.starts_with("IQ2");
  const std::vector<float> ones(kCols, 1.0f);
  const float* importance = x.importance.empty() ? nullptr : x.importance.data();
  const float* of_peer = importance == nullptr && needs_some ? ones.data() : importance;
  const cpu::EncodeTask task = {&format,  x.values.data(), importance,
                                x.rows(), kCols,           blocks[0].data()};
  std::vector<double> seconds[2];
  for (int round = 0; round < rounds; ++round) {
    const double begin = ThreadSeconds();
    encode(task);
    const double middle = ThreadSeconds();
    seconds[0].push_back(middle - begin);
    if (peer == nullptr) continue;
    peer(x.values.data(), blocks[1].data(), x.rows(), kCols, of_peer, nullptr);
    seconds[1].push_back(ThreadSeconds() - middle);
  }
  std::vector<Outcome> outcomes;
  for (int side = 0; side < (peer == nullptr ? 1 : 2); ++side) {
    std::sort(seconds[side].begin(), seconds[side].end());
    outcomes.push_back(
        {static_cast<double>(x.values.size()) / seconds[side][seconds[side].size() / 2],
         RelativeError(format, x, blocks[side].data())});
  }
  return outcomes;
}

void PrintType(const quant::FormatTraits& format, cpu::EncodeFunction encode, PeerEncoder peer,
               const std::vector<Case>& cases, int rounds) {
  double speeds[2] = {};
  std::string ratios;
  std::string errors;
  std::string error_ratios;
  for (const Case& x : cases) {
    const std::vector<Outcome> outcomes = Measure(format, encode, peer, x, rounds);
    const char* comma = &x == &cases.front() ? "" : ", ";
    for (size_t side = 0; side < outcomes.size(); ++side) {
      speeds[side] += outcomes[side].speed / static_cast<double>(cases.size());
    }
    errors += fmt::format("{}{:.6f}", comma, outcomes[0].error);
    if (peer == nullptr) continue;
    ratios += fmt::format("{}{:.1f}", comma, outcomes[0].speed / outcomes[1].speed);
    error_ratios += fmt::format("{}{:.3f}", comma, outcomes[0].error / outcomes[1].error);
  }
  std::string of_peer = "| | | ";
  if (peer != nullptr) {
    of_peer =
        fmt::format("| {:.2f} | {:.1f} | {} ", speeds[1] * 1e-6, speeds[0] / speeds[1], ratios);
  }
  fmt::print("| {} | {:.2f} {}| {} | {} |\n", format.name, speeds[0] * 1e-6, of_peer, errors,
             error_ratios);
  std::fflush(stdout);
}

Status Run(const Options& options) {
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernels(options.isa));
  KVANT_ASSIGN(const std::vector<void*> peers, OpenPeers(options.peers));
  std::vector<Case> cases;
  AddRandomCases(cases);
  if (!options.model.empty()) KVANT_TRY(AddModelCases(options.model, cases));
  std::string names;
  for (const Case& x : cases) {
    names +=
        fmt::format("{}{}", names.empty() ? "" : ", ", x.importance.empty() ? x.name : "weighted");
  }
  fmt::print("Kernels: {}. Cases: {}.\n\n", kernels->isa, names);
  fmt::print(
      "| Type | kvant | the other | times the other | of each case | error | of the other's |\n"
      "| --- | ---: | ---: | ---: | --- | --- | --- |\n");
  for (const quant::FormatTraits* format : options.formats) {
    PrintType(*format, kernels->encode[quant::FormatIndex(*format)], FindPeer(peers, *format),
              cases, options.rounds);
  }
  return {};
}

constexpr const char* kUsage =
    "usage: encoders [--isa ISA] [--rounds N] [--values MODEL.gguf] [--peer LIBRARY.so]... "
    "TYPE...\n";

Result<Options> ParseArguments(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      const quant::FormatTraits* format = quant::FindFormat(word);
      if (format == nullptr || !format->quantized() || kCols % format->block_values != 0) {
        return Error{ErrorCode::kInvalid, fmt::format("{} is not a type of blocks", word)};
      }
      options.formats.push_back(format);
      continue;
    }
    if (i + 1 == argc) return Error{ErrorCode::kInvalid, fmt::format("{} needs a value", word)};
    const std::string_view value = argv[++i];
    if (word == "--isa") {
      options.isa = value;
    } else if (word == "--rounds") {
      const auto [end, error] =
          std::from_chars(value.data(), value.data() + value.size(), options.rounds);
      if (error != std::errc() || *end != 0 || options.rounds < 1) {
        return Error{ErrorCode::kInvalid,
                     fmt::format("--rounds: expected a number from 1 on, found {}", value)};
      }
    } else if (word == "--values") {
      options.model = value;
    } else if (word == "--peer") {
      options.peers.emplace_back(value);
    } else {
      return Error{ErrorCode::kInvalid, fmt::format("{} is not an option", word)};
    }
  }
  if (options.formats.empty()) return Error{ErrorCode::kInvalid, "no type is named"};
  return options;
}

}  // namespace
}  // namespace kvant

int main(int argc, char** argv) {
  const auto options = kvant::ParseArguments(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "encoders: %s\n%s", options.error().message.c_str(), kvant::kUsage);
    return 2;
  }
  const kvant::Status status = kvant::Run(*options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "encoders: %s\n", status.error().message.c_str());
  return 1;
}
