// Measures the limits of this machine: bytes read and multiply-accumulates per second.
//
// The threads, the process and the pages of data are those of the test that a limit is compared
// with. The best of several runs counts, because a limit is what is possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/peaks.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/bench_report.h"
#include "tools/options/json.h"

namespace kvant::tools {

// The limits of the arithmetic units, summed over all threads.
struct ComputeLimits {
  double int8 = 0;  // multiply-accumulates per second
  double int16 = 0;
  double float32 = 0;
  double clock_hz = 0;  // while int8 runs

  // Multiply-accumulates per clock cycle of one thread.
  double PerCycle(double macs_per_second, int threads) const;
};

ComputeLimits MeasureCompute(ThreadPool& team, const cpu::PeakLoops& peaks);

// Bytes per second at which the team reads these pieces of memory, each member a contiguous share.
double MeasureRead(ThreadPool& team, const cpu::PeakLoops& peaks,
                   std::span<const std::span<const std::byte>> pieces);

// Measures reads of anonymous memory of this size, in huge pages where the system gives them, as a
// KV cache lies in. kOutOfMemory.
Result<double> MeasureAnonymousRead(ThreadPool& team, const cpu::PeakLoops& peaks, size_t bytes);

// Runs `kvant bench --machine`: measures every limit and adds a row for each.
Status BenchMachine(const BenchOptions& options, BenchReport& report);

// The first fields of every row: the machine and the build.
Json BuildFields();

}  // namespace kvant::tools
