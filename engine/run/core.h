// The parts that all classes of a runner share: the model, the options, the threads and the cache.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/row_blocks.h"
#include "kvant/runner.h"

namespace kvant::run {

struct Core {
  Core(std::shared_ptr<const Model> model_in, const SessionOptions& resolved,
       ThreadPlaces places_in)
      : model(std::move(model_in)),
        options(resolved),
        places(std::move(places_in)),
        team(resolved.threads, places),
        row_blocks(model->vocab_size(), model->row_dim()) {}

  // Puts weights and cache on the nodes of the places. Executor::Prepare places the memory of
  // passes.
  void PlaceMemory();

  // Writes a line to the KV log; formats it only if there is a log.
  template <typename... Args>
  void LogEvent(fmt::format_string<Args...> format, Args&&... args) const {
    if (log) log("KV event: " + fmt::format(format, std::forward<Args>(args)...));
  }

  std::shared_ptr<const Model> model;
  SessionOptions options;  // with defaults filled in
  ThreadPlaces places;
  ThreadPool team;
  std::shared_ptr<kv::DeviceSpace> device;  // null: nothing is offloaded
  std::optional<kv::Cache> cache;           // none: every pass computes whole sequences again
  kv::RowBlocks row_blocks;
  bool threads_chosen_here = false;  // the caller asked for no number of threads
  RunnerStats counters;              // only what passes and rewinds count; the rest stays 0
  Runner::LogSink log;
};

}  // namespace kvant::run
