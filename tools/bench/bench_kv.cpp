// Measures the cost of operations of the KV cache, each beside its cost without sharing.
#include "tools/bench/bench_kv.h"
#include "base/counted.h"
#include "engine/run/memory_plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "tools/options/json.h"
#include "tools/options/model_facts.h"
#include "tools/options/stopwatch.h"

namespace kvant::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kReorderedBeams = 4;
constexpr size_t kForks = 16;
constexpr int64_t kRewound = 8;
constexpr std::array<int64_t, 3> kStatesRewound = {1, 100, 5000};
constexpr int64_t kFewRewound = 100;

struct Operation {
  explicit Operation(std::string name_in, int64_t sequences_in = 1)
      : name(std::move(name_in)), sequences(sequences_in) {}

  std::string name;
  int64_t sequences;
  std::vector<double> seconds;
  uint64_t bytes = 0;
  double baseline_seconds = 0;  // median
  uint64_t baseline_bytes = 0;
  std::string baseline;  // what it is
};

class KvBench {
 public:
  KvBench(const BenchOptions& options, const BenchModel& model, BenchReport& report)
      : options_(options), model_(model), report_(report) {}

  Status Run(const SessionOptions& session, int64_t depth) {
    KVANT_TRY(RunBeamSteps(session, depth));
    SessionOptions many = session;
    many.context = depth + kMore;
    many.sequences = kForks + 1;
    KVANT_TRY(CheckMemory(*model_.model, many, depth + static_cast<int64_t>(kForks) * kMore));
    KVANT_ASSIGN(runner_, Runner::Create(model_.model, many));
    session_ = runner_->options();
    tokens_ = RandomTokens(*model_.model, many.context, 1);
    KVANT_ASSIGN(sequence_, runner_->NewSequence());
    Progress("prompt");
    KVANT_TRY(runner_->Append(sequence_, Tokens(0, depth)));
    KVANT_TRY(CompareMemory());
    KVANT_TRY(RunReorder());
    KVANT_TRY(RunFork());
    KVANT_TRY(RunRewind());
    KVANT_TRY(RunRewindsOfStates());
    return RunFiles();
  }

 private:
  // Tokens that the operations may append to a sequence that holds `depth` tokens.
  static constexpr int64_t kMore = 64;

  std::span<const TokenId> Tokens(int64_t position, int64_t count) const {
    return std::span(tokens_).subspan(static_cast<size_t>(position), static_cast<size_t>(count));
  }

  void Progress(std::string_view what) {
    report_.Progress(fmt::format("{}: {} at {}", model_.name, what, Counted(depth_, "token")));
  }

  // The time of one step of beam search; its baseline is a step with a single beam.
  Status RunBeamSteps(SessionOptions session, int64_t depth) {
    const int64_t steps = options_.generated.front();
    const int64_t beams_max = *std::max_element(options_.beams.begin(), options_.beams.end());
    session.context = depth + steps + 1;
    const auto tokens = RandomTokens(*model_.model, session.context, 1);
    session.sequences = 2 * beams_max;
    session.prefix_cache = true;
    KVANT_TRY(CheckMemory(*model_.model, session, session.context + session.sequences * steps));
    KVANT_ASSIGN(const auto runner, Runner::Create(model_.model, session));
    session_ = runner->options();
    depth_ = depth;
    double single = 0;
    for (const int64_t beams : options_.beams) {
      Progress(fmt::format("step of {}", Counted(beams, "beam")));
      SpeedCase test{.n_gen = 1, .depth = depth, .beams = beams};
      KVANT_TRY(Discard(RunBeams(*runner, tokens, test)));
      test.n_gen = steps;
      Operation operation("beam step", beams);
      for (int64_t i = 0; i < options_.repetitions; ++i) {
        KVANT_ASSIGN(const SpeedTimes times, RunBeams(*runner, tokens, test));
        operation.seconds.push_back(times.seconds / static_cast<double>(steps));
      }
      operation.bytes = runner->stats().kv_bytes_used;
      if (single == 0) single = Median(operation.seconds);
      operation.baseline_seconds = single;
      operation.baseline = fmt::format("a step of {}", options_.beams.front());
      AddRow(operation);
    }
    return {};
  }

  // The bytes in use; their baseline is the number of positions times the bytes of one position.
  Status CompareMemory() {
    KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(*model_.model, session_));
    Operation operation("memory");
    operation.bytes = runner_->stats().kv_bytes_used;
    operation.baseline_bytes = static_cast<uint64_t>(KvBytes(plan, depth_));
    operation.baseline = "positions times bytes of one";
    AddRow(operation);
    return {};
  }

  Result<std::vector<SequenceId>> ForkMany(size_t count) {
    std::vector<SequenceId> forks;
    for (size_t i = 0; i < count; ++i) {
      KVANT_ASSIGN(const SequenceId fork, runner_->Fork(sequence_));
      forks.push_back(fork);
    }
    return forks;
  }

  Status FreeMany(const std::vector<SequenceId>& forks) {
    for (const SequenceId fork : forks) KVANT_TRY(runner_->FreeSequence(fork));
    return {};
  }

  // Appends one token to each of the sequences.
  Status StepMany(const std::vector<SequenceId>& sequences) {
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < sequences.size(); ++i) {
      inputs.push_back({sequences[i], Tokens(runner_->length(sequences[i]), 1)});
    }
    return runner_->Step(inputs);
  }

  // Beams of which one ends and another is continued twice. The time is that of the call; the bytes
  // are what the next step copies for it. Beside copying all keys and values of all beams, as
  // programs do that keep each beam in an array of its own.
  Status RunReorder() {
    Progress("reorder");
    KVANT_ASSIGN(const auto beams, ForkMany(kReorderedBeams));
    KVANT_TRY(StepMany(beams));
    const std::vector<int> parents = {1, 0, 3, 3};
    Operation operation("reorder", kReorderedBeams);
    uint64_t copied = runner_->stats().kv_bytes_copied;
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      const auto start = Clock::now();
      KVANT_TRY(runner_->Reorder(beams, parents));
      operation.seconds.push_back(SecondsSince(start));
      if (runner_->length(beams[0]) + 1 < session_.context) KVANT_TRY(StepMany(beams));
    }
    copied = runner_->stats().kv_bytes_copied - copied;
    operation.bytes = copied / static_cast<uint64_t>(options_.repetitions);
    KVANT_TRY(CopyEverything(operation));
    AddRow(operation);
    return FreeMany(beams);
  }

  // The baseline of a reorder: memcpy by all threads.
  Status CopyEverything(Operation& operation) {
    KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(*model_.model, session_));
    const auto bytes = static_cast<size_t>(KvBytes(plan, depth_)) * kReorderedBeams;
    KVANT_ASSIGN(AlignedBuffer from, AlignedBuffer::Allocate(bytes, "the copied beams"));
    KVANT_ASSIGN(AlignedBuffer to, AlignedBuffer::Allocate(bytes, "the copied beams"));
    from.Commit();
    to.Commit();
    std::vector<double> seconds;
    ThreadPool team(session_.threads);
    for (int64_t i = 0; i < std::max<int64_t>(options_.repetitions, 3); ++i) {
      const auto start = Clock::now();
      team.Run([&](const ThreadPool::Member& member) {
        const Range range =
            OwnedRange(static_cast<int64_t>(bytes), 4096, member.index, member.count);
        std::memcpy(to.data() + range.begin, from.data() + range.begin,
                    static_cast<size_t>(range.end - range.begin));
      });
      seconds.push_back(SecondsSince(start));
    }
    operation.baseline_seconds = Median(seconds);
    operation.baseline_bytes = bytes;
    operation.baseline = "copying every beam";
    return {};
  }

  Status RunFork() {
    Progress("fork");
    Operation operation("fork", kForks);
    const uint64_t before = runner_->stats().kv_bytes_used;
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      const auto start = Clock::now();
      KVANT_ASSIGN(const auto forks, ForkMany(kForks));
      operation.seconds.push_back(SecondsSince(start));
      if (i == 0) {  // what they take when each has gone a way of its own
        KVANT_TRY(StepMany(forks));
        operation.bytes = runner_->stats().kv_bytes_used - before;
      }
      KVANT_TRY(FreeMany(forks));
    }
    operation.baseline_bytes = before * kForks;
    operation.baseline = "a copy for each";
    AddRow(operation);
    return {};
  }

  // The time to rewind by tokens that were appended just before.
  Status RunRewind() {
    Progress("rewind");
    Operation operation(fmt::format("rewind {}", kRewound));
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      KVANT_TRY(runner_->Append(sequence_, Tokens(depth_, kRewound)));
      const auto start = Clock::now();
      KVANT_TRY(runner_->Rewind(sequence_, depth_));
      operation.seconds.push_back(SecondsSince(start));
    }
    AddRow(operation);
    return {};
  }

  // Models with recurrent layers: what the states of the text take beside one of them, and the time
  // to go back to some position in its middle, from the last state kept before it.
  Status RunRewindsOfStates() {
    Operation states("states");
    for (const KvGroupStats& group : runner_->stats().groups) {
      if (group.bytes_per_token > 0) continue;
      states.bytes += static_cast<uint64_t>(group.blocks_used) * group.block_bytes;
      states.baseline_bytes += group.block_bytes;
    }
    if (states.bytes == 0) return {};
    states.baseline = "one state";
    AddRow(states);
    for (const int64_t count : kStatesRewound) {
      if (count >= depth_) continue;
      Progress(fmt::format("rewind by {}", count));
      Operation operation(fmt::format("rewind {}", count));
      // The tokens that were taken back have to be computed again for the next round.
      const int64_t rounds = count > kFewRewound ? 1 : options_.repetitions;
      for (int64_t i = 0; i < rounds; ++i) {
        const auto start = Clock::now();
        KVANT_TRY(runner_->Rewind(sequence_, depth_ - count));
        operation.seconds.push_back(SecondsSince(start));
        const auto again = Clock::now();
        KVANT_TRY(runner_->Append(sequence_, Tokens(depth_ - count, count)));
        operation.baseline_seconds = SecondsSince(again);
      }
      operation.baseline = "processing these tokens";
      AddRow(operation);
    }
    return {};
  }

  Status RunFiles() {
    Progress("save and load");
    std::error_code error;
    const auto folder = std::filesystem::temp_directory_path(error);
    const std::string path = (folder / fmt::format("kvant-bench-{}.session", getpid())).string();
    const Status status = SaveAndLoad(path);
    std::filesystem::remove(path, error);
    return status;
  }

  Status SaveAndLoad(const std::string& path) {
    Operation save("save");
    Operation load("load");
    for (int64_t i = 0; i < options_.repetitions; ++i) {
      auto start = Clock::now();
      KVANT_TRY(runner_->Save(path, {&sequence_, 1}));
      save.seconds.push_back(SecondsSince(start));
      start = Clock::now();
      KVANT_ASSIGN(const auto loaded, runner_->Load(path));
      load.seconds.push_back(SecondsSince(start));
      KVANT_TRY(FreeMany(loaded));
    }
    std::error_code error;
    save.bytes = load.bytes = std::filesystem::file_size(path, error);
    AddRow(save);
    AddRow(load);
    return {};
  }

  template <class T>
  static Status Discard(const Result<T>& result) {
    return result.ok() ? Status() : Status(result.error());
  }

  void AddRow(const Operation& operation) {
    const bool timed = !operation.seconds.empty();
    const double median = timed ? Median(operation.seconds) : 0;
    double ratio = 0;
    if (timed && operation.baseline_seconds > 0) {
      ratio = median / operation.baseline_seconds;
    } else if (operation.baseline_bytes > 0) {
      ratio = static_cast<double>(operation.bytes) / static_cast<double>(operation.baseline_bytes);
    }
    std::vector<uint64_t> samples;
    for (const double s : operation.seconds) {
      samples.push_back(static_cast<uint64_t>(std::llround(s * 1e9)));
    }
    const bool file = operation.name == "save" || operation.name == "load";
    const double rate = file && median > 0 ? static_cast<double>(operation.bytes) / median : 0;
    Json row = ModelFields(model_, session_);
    row["operation"] = operation.name;
    row["n_depth"] = depth_;
    row["n_seqs"] = operation.sequences;
    row["median_ns"] = std::llround(median * 1e9);
    row["bytes"] = operation.bytes;
    row["bytes_per_second"] = rate;
    row["baseline"] = operation.baseline;
    row["baseline_ns"] = std::llround(operation.baseline_seconds * 1e9);
    row["baseline_bytes"] = operation.baseline_bytes;
    row["ratio"] = ratio;
    row["samples_ns"] = samples;
    report_.AddRow(row,
                   {{operation.name, std::to_string(depth_), std::to_string(operation.sequences),
                     std::string(row["type_k"]) + "/" + std::string(row["type_v"]),
                     timed ? fmt::format("{:.3f} ms", median * 1e3) : "", SizeText(operation.bytes),
                     rate > 0 ? fmt::format("{:.0f}", rate * 1e-6) : "",
                     operation.baseline_seconds > 0
                         ? fmt::format("{:.3f} ms", operation.baseline_seconds * 1e3)
                     : operation.baseline_bytes > 0 ? SizeText(operation.baseline_bytes)
                                                    : "",
                     ratio > 0 ? fmt::format("{:.4f}", ratio) : "", operation.baseline}});
  }

  const BenchOptions& options_;
  const BenchModel& model_;
  BenchReport& report_;
  SessionOptions session_;  // of the rows under way
  int64_t depth_ = 0;
  std::unique_ptr<Runner> runner_;
  SequenceId sequence_ = 0;
  std::vector<TokenId> tokens_;
};

}  // namespace

std::vector<MarkdownColumn> KvOperationColumns() {
  return {{"operation", 10}, {"depth", 6}, {"sequences", 9}, {"kv", 9},    {"time", 12},
          {"bytes", 11},     {"MB/s", 6},  {"beside", 12},   {"ratio", 9}, {"baseline", 28}};
}

Status BenchKvOperations(const BenchOptions& options, const BenchModel& model,
                         BenchReport& report) {
  for (const KvTypes& types : options.kv_types) {
    for (const int64_t threads : options.threads) {
      for (const int64_t depth : options.depths) {
        if (depth == 0) continue;
        KvBench bench(options, model, report);
        KVANT_TRY(bench.Run(options.Session(types, threads, options.chunks.front()), depth));
      }
    }
  }
  return {};
}

}  // namespace kvant::tools
