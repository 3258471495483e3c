#include "tools/bench/bench_machine.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

#include "base/aligned_buffer.h"
#include "base/available_memory.h"
#include "base/counted.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "base/version.h"
#include "cpu/cpu_features.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "tools/options/json.h"
#include "tools/options/stopwatch.h"

namespace kvant::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Piece = std::span<const std::byte>;

// Many short samples: on a busy machine some of them are not interrupted.
constexpr int kComputeSamples = 50;
constexpr double kComputeSampleSeconds = 0.001;
constexpr int kClockSamples = 8;
constexpr int64_t kClockRounds = 400;
constexpr int kReadSamples = 10;
constexpr double kReadSampleSeconds = 0.01;
// Far larger than any cache, and soon written.
constexpr size_t kMachineBytes = size_t{512} << 20;

// The result of one member of a team, on a cache line of its own.
struct alignas(64) Share {
  double seconds = 0;
  double clock_hz = 0;
  uint64_t sum = 0;
};

struct ComputeSample {
  double macs_per_second = 0;
  double clock_hz = 0;
};

// All members call the loop `calls` times; the time of the slowest member counts.
ComputeSample RunCompute(ThreadPool& team, const cpu::PeakLoop& loop, int64_t calls) {
  std::vector<Share> shares(static_cast<size_t>(team.size()));
  team.Run([&](const ThreadPool::Member& member) {
    Share& share = shares[static_cast<size_t>(member.index)];
    member.Barrier();
    const auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) {
      share.sum += static_cast<uint64_t>(loop.run(cpu::kPeakRoundsMax));
    }
    share.seconds = SecondsSince(start);
    // At once, since the clock falls and rises with the instructions in use.
    for (int i = 0; i < kClockSamples; ++i) {
      const auto clock_start = Clock::now();
      const int64_t cycles = cpu::RunClock(kClockRounds);
      share.clock_hz =
          std::max(share.clock_hz, static_cast<double>(cycles) / SecondsSince(clock_start));
    }
  });
  ComputeSample sample;
  double seconds = 0;
  for (const Share& share : shares) {
    seconds = std::max(seconds, share.seconds);
    sample.clock_hz += share.clock_hz / static_cast<double>(team.size());
  }
  sample.macs_per_second = static_cast<double>(calls * cpu::kPeakRoundsMax * loop.macs) *
                           static_cast<double>(team.size()) / seconds;
  return sample;
}

ComputeSample BestCompute(ThreadPool& team, const cpu::PeakLoop& loop) {
  const auto start = Clock::now();
  ComputeSample best = RunCompute(team, loop, 1);
  const int64_t calls =
      std::max<int64_t>(1, static_cast<int64_t>(kComputeSampleSeconds / SecondsSince(start)));
  for (int i = 0; i < kComputeSamples; ++i) {
    const ComputeSample sample = RunCompute(team, loop, calls);
    if (sample.macs_per_second > best.macs_per_second) best = sample;
  }
  return best;
}

// The part of a piece that cpu::PeakLoops::read can take.
Piece Inner(Piece piece) {
  const auto address = reinterpret_cast<uintptr_t>(piece.data());
  const size_t skip = std::min((64 - address % 64) % 64, piece.size());
  const size_t size = (piece.size() - skip) / cpu::kReadPieceBytes * cpu::kReadPieceBytes;
  return piece.subspan(skip, size);
}

// Reads bytes [begin, end) of the pieces laid one after the other; multiples of kReadPieceBytes.
uint64_t ReadRange(const cpu::PeakLoops& peaks, std::span<const Piece> pieces, size_t begin,
                   size_t end) {
  uint64_t sum = 0;
  size_t piece_begin = 0;
  for (const Piece& piece : pieces) {
    const size_t piece_end = piece_begin + piece.size();
    const size_t from = std::max(begin, piece_begin);
    const size_t to = std::min(end, piece_end);
    if (from < to) sum ^= peaks.read(piece.data() + (from - piece_begin), to - from);
    piece_begin = piece_end;
  }
  return sum;
}

// Bytes per second over `passes` passes.
double RunRead(ThreadPool& team, const cpu::PeakLoops& peaks, std::span<const Piece> pieces,
               size_t bytes, int64_t passes) {
  std::vector<Share> shares(static_cast<size_t>(team.size()));
  const auto blocks = static_cast<int64_t>(bytes / cpu::kReadPieceBytes);
  team.Run([&](const ThreadPool::Member& member) {
    Share& share = shares[static_cast<size_t>(member.index)];
    const Range range = OwnedRange(blocks, 1, member.index, member.count);
    member.Barrier();
    const auto start = Clock::now();
    for (int64_t pass = 0; pass < passes; ++pass) {
      share.sum ^= ReadRange(peaks, pieces, static_cast<size_t>(range.begin) * cpu::kReadPieceBytes,
                             static_cast<size_t>(range.end) * cpu::kReadPieceBytes);
    }
    share.seconds = SecondsSince(start);
  });
  double seconds = 0;
  for (const Share& share : shares) seconds = std::max(seconds, share.seconds);
  return static_cast<double>(bytes) * static_cast<double>(passes) / seconds;
}

// A file in memory: pages of a page cache, as those of a mapped model.
Result<double> MeasureFileRead(ThreadPool& team, const cpu::PeakLoops& peaks, size_t bytes) {
  KVANT_ASSIGN(const MemoryFile file, MemoryFile::Create("kvant-bench"));
  {
    KVANT_ASSIGN(OutputFile output, OutputFile::Create(file.path()));
    const std::vector<std::byte> ones(OutputFile::kPieceBytes, std::byte{1});
    while (output.position() < bytes) KVANT_TRY(output.Write(ones));
    KVANT_TRY(output.Commit());
  }
  KVANT_ASSIGN(const MappedFile mapping, MappedFile::Open(file.path()));
  const Piece piece = mapping.bytes();
  return MeasureRead(team, peaks, std::span(&piece, 1));
}

std::string LineValue(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::string FeatureNames() {
  const cpu::CpuFeatures features = cpu::DetectCpuFeatures();
  std::string names;
  for (const cpu::CpuFeature feature : cpu::AllCpuFeatures()) {
    if (!features.Has(feature)) continue;
    if (!names.empty()) names += ' ';
    names += CpuFeatureName(feature);
  }
  return names;
}

struct Limit {
  const char* name;
  std::string value;
  std::string per_cycle;
};

}  // namespace

double ComputeLimits::PerCycle(double macs_per_second, int threads) const {
  return clock_hz > 0 ? macs_per_second / clock_hz / threads : 0;
}

ComputeLimits MeasureCompute(ThreadPool& team, const cpu::PeakLoops& peaks) {
  const ComputeSample int8 = BestCompute(team, peaks.int8);
  return {int8.macs_per_second, BestCompute(team, peaks.int16).macs_per_second,
          BestCompute(team, peaks.float32).macs_per_second, int8.clock_hz};
}

double MeasureRead(ThreadPool& team, const cpu::PeakLoops& peaks,
                   std::span<const std::span<const std::byte>> pieces) {
  std::vector<Piece> inner;
  size_t bytes = 0;
  for (const Piece& piece : pieces) {
    inner.push_back(Inner(piece));
    bytes += inner.back().size();
  }
  if (bytes == 0) return 0;
  RunRead(team, peaks, inner, bytes, 1);  // maps the pages
  const auto start = Clock::now();
  double best = RunRead(team, peaks, inner, bytes, 1);
  const int64_t passes =
      std::max<int64_t>(1, static_cast<int64_t>(kReadSampleSeconds / SecondsSince(start)));
  for (int i = 0; i < kReadSamples; ++i) {
    best = std::max(best, RunRead(team, peaks, inner, bytes, passes));
  }
  return best;
}

Result<double> MeasureAnonymousRead(ThreadPool& team, const cpu::PeakLoops& peaks, size_t bytes) {
  KVANT_ASSIGN(const AlignedBuffer buffer, AlignedBuffer::Allocate(bytes, "the bandwidth test"));
  team.Run([&](const ThreadPool::Member& member) {
    const auto size = static_cast<int64_t>(bytes);
    const Range range = OwnedRange(size, int64_t{2} << 20, member.index, member.count);
    std::fill(buffer.data() + range.begin, buffer.data() + range.end, std::byte{1});
  });
  const Piece piece = buffer.bytes();
  return MeasureRead(team, peaks, std::span(&piece, 1));
}

Status BenchMachine(const BenchOptions& options, BenchReport& report) {
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  const cpu::PeakLoops& peaks = *kernels->peaks;
  report.Begin({{"limit", 32}, {"threads", 7}, {"measured", 14}, {"per cycle and thread", 20}});
  const size_t bytes = std::max<size_t>(
      std::min<uint64_t>(kMachineBytes, AvailableMemory() / 4) >> 21 << 21, size_t{2} << 20);
  for (const int64_t threads : options.threads) {
    report.Progress(fmt::format("limits of {}", Counted(threads, "thread")));
    ThreadPool team(static_cast<int>(threads));
    KVANT_ASSIGN(const double file, MeasureFileRead(team, peaks, bytes));
    KVANT_ASSIGN(const double anonymous, MeasureAnonymousRead(team, peaks, bytes));
    const ComputeLimits compute = MeasureCompute(team, peaks);
    if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "cancelled");
    Json row = BuildFields();
    row["isa"] = kernels->isa;
    row["n_threads"] = threads;
    row["clock_ghz"] = compute.clock_hz * 1e-9;
    row["read_file_gbs"] = file * 1e-9;
    row["read_anonymous_gbs"] = anonymous * 1e-9;
    std::vector<TableWriter::Cells> lines;
    const auto add = [&](const char* name, const std::string& value, const std::string& cycle) {
      lines.push_back({name, std::to_string(threads), value, cycle});
    };
    add("read, pages of a file", fmt::format("{:.1f} GB/s", file * 1e-9), "");
    add("read, anonymous pages", fmt::format("{:.1f} GB/s", anonymous * 1e-9), "");
    const auto add_compute = [&](const std::string& name, const cpu::PeakLoop& loop, double macs) {
      const double per_cycle = compute.PerCycle(macs, team.size());
      row[name + "_gmacs"] = macs * 1e-9;
      row[name + "_macs_per_cycle"] = per_cycle;
      row[name + "_instruction"] = loop.instruction;
      lines.push_back({fmt::format("{}, {}", name, loop.instruction), std::to_string(threads),
                       fmt::format("{:.0f} GMAC/s", macs * 1e-9),
                       fmt::format("{:.1f}", per_cycle)});
    };
    add_compute("int8", peaks.int8, compute.int8);
    add_compute("int16", peaks.int16, compute.int16);
    add_compute("float", peaks.float32, compute.float32);
    add("clock while int8 runs", fmt::format("{:.2f} GHz", compute.clock_hz * 1e-9), "");
    report.AddRow(row, lines);
  }
  report.Note(
      fmt::format("cpu: {}, {}", BuildFields()["cpu_info"].get<std::string>(), kernels->isa));
  return {};
}

Json BuildFields() {
  const VersionInfo& version = Version();
  std::string cpu = LineValue("/proc/cpuinfo", "model name");
  if (cpu.empty()) cpu = "unknown";
  Json out;
  out["build_commit"] = version.commit;
  out["build_number"] = 0;
  out["build_compiler"] = version.compiler;
  out["build_type"] = version.build_type;
  out["cpu_info"] = cpu;
  out["cpu_flags"] = FeatureNames();
  return out;
}

}  // namespace kvant::tools
