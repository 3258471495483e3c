// The log of the KV cache: the two line forms that other engines' users know, and events.
#include <fmt/format.h>

#include "engine/arch/arch_spec.h"
#include "engine/runner_state.h"

namespace kvant {
namespace {

void LogLayer(const Runner::LogSink& log, std::string_view prefix, int layer,
              const kv::GroupShape& shape, int64_t batch, int64_t positions) {
  for (const bool key : {true, false}) {
    log(fmt::format("{}.{}.{} shape=[{},{},{},{}]", prefix, layer, key ? "key" : "value", batch,
                    shape.kv_heads, positions, key ? shape.k_dim : shape.v_dim));
  }
}

}  // namespace

void Runner::SetKvLog(LogSink sink) {
  State& state = *state_;
  state.log = std::move(sink);
  if (!state.cache.has_value()) return;
  state.cache->SetLog(state.log);
  if (!state.log) return;
  for (int layer = 0; layer < std::ssize(state.model->spec().layers); ++layer) {
    LogLayer(state.log, "Adding KV cache input: past_key_values", layer,
             state.cache->shape(state.cache->group_of_layer(layer)), state.options.sequences, 0);
  }
}

// One batch for each length among the sequences of a step.
void Runner::State::LogUpdate(std::span<const StepInput> inputs) {
  if (!cache.has_value()) return;
  const auto kv_of = [&](size_t i) -> const kv::Sequence& {
    return sequences[static_cast<size_t>(inputs[i].sequence)]->kv;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    int64_t batch = 0;
    bool first = true;
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (kv_of(j).length != kv_of(i).length) continue;
      if (j < i) first = false;
      ++batch;
    }
    if (!first) continue;
    for (int layer = 0; layer < std::ssize(model->spec().layers); ++layer) {
      const int group = cache->group_of_layer(layer);
      const int64_t held = kv_of(i).tables[static_cast<size_t>(group)].first_position;
      LogLayer(log, "KV cache update: present", layer, cache->shape(group), batch,
               kv_of(i).length - held);
    }
  }
}

}  // namespace kvant
