// kvant bench --compare-no-cache and --kv-ops: what the KV cache is worth, and what its operations
// cost.
#pragma once

#include "base/result.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_speed.h"

namespace kvant::tools {

std::vector<MarkdownColumn> NoCacheColumns();
std::vector<MarkdownColumn> KvOperationColumns();

// Rows with the fields `test` ("step at N" or "first N tokens"), n_depth, n_gen, cached_ns,
// uncached_ns (medians) and ratio.
Status BenchNoCache(const BenchOptions& options, const BenchModel& model, BenchReport& report);

// Rows with the fields `operation`, n_depth, n_seqs, median_ns, samples_ns, bytes (moved, stored or
// in use), baseline_ns and baseline_bytes (0 without one), ratio (to the baseline in time, or in
// bytes where there is no time).
Status BenchKvOperations(const BenchOptions& options, const BenchModel& model, BenchReport& report);

}  // namespace kvant::tools
