// Lifetimes, slots and the printed form of a plan.
#include "engine/graph/plan.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "base/check.h"

namespace kvant::graph {
namespace {

constexpr size_t kLineBytes = 64;

}  // namespace

ValueId Plan::AddValue(std::string name, RowKind rows, int64_t cols, cpu::ActivationKind kind) {
  const size_t bytes = kind == cpu::ActivationKind::kInt8
                           ? cpu::ActivationRowBytes(cols)
                           : static_cast<size_t>(cols) * sizeof(float);
  values_.push_back({std::move(name), rows, cols, kind, RoundUp(bytes, kLineBytes)});
  return static_cast<ValueId>(values_.size()) - 1;
}

void Plan::Add(std::unique_ptr<Node> node, std::vector<std::unique_ptr<Node>>& nodes) {
  node->number_ = static_cast<int>(body_.size() + head_.size());
  KVANT_CHECK(node->number_ < 1 << Node::kNumberBits);
  nodes.push_back(std::move(node));
}

void Plan::AddBodyNode(std::unique_ptr<Node> node) { Add(std::move(node), body_); }

void Plan::AddHeadNode(std::unique_ptr<Node> node) { Add(std::move(node), head_); }

int Plan::AddCacheLayer(const CacheLayer& layer) {
  cache_layers_.push_back(layer);
  return static_cast<int>(cache_layers_.size()) - 1;
}

int Plan::AddRope(RopeSpec rope) {
  ropes_.push_back(std::move(rope));
  return static_cast<int>(ropes_.size()) - 1;
}

void Plan::Finish() {
  const int body_size = static_cast<int>(body_.size());
  const int end = body_size + static_cast<int>(head_.size());
  const auto node_at = [&](int index) -> const Node& {
    return index < body_size ? *body_[static_cast<size_t>(index)]
                             : *head_[static_cast<size_t>(index - body_size)];
  };
  for (int index = 0; index < end; ++index) {
    for (const auto* list : {&node_at(index).reads(), &node_at(index).writes()}) {
      for (const ValueId id : *list) {
        Value& value = values_[static_cast<size_t>(id)];
        if (value.first_node < 0) value.first_node = index;
        value.last_node = index;
      }
    }
  }
  // The head runs several times over one body, so what it reads from the body stays alive to the
  // end, and its own values must not take such slots: both follow from these lifetimes.
  for (Value& value : values_) {
    KVANT_CHECK(value.first_node >= 0);
    if (value.first_node < body_size && value.last_node >= body_size) value.last_node = end;
  }
  if (logits_ != kNoValue) values_[static_cast<size_t>(logits_)].last_node = end;

  // Best fit in order of first use: the free slot of the same kind that grows least.
  std::vector<ValueId> order(values_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<ValueId>(i);
  std::stable_sort(order.begin(), order.end(), [this](ValueId a, ValueId b) {
    return values_[static_cast<size_t>(a)].first_node < values_[static_cast<size_t>(b)].first_node;
  });
  for (const ValueId id : order) {
    Value& value = values_[static_cast<size_t>(id)];
    int best = -1;
    size_t best_waste = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (slot.rows != value.rows || slot.last_node >= value.first_node) continue;
      const size_t waste = slot.row_bytes > value.row_bytes ? slot.row_bytes - value.row_bytes
                                                            : value.row_bytes - slot.row_bytes;
      if (best < 0 || waste < best_waste) {
        best = static_cast<int>(i);
        best_waste = waste;
      }
    }
    if (best < 0) {
      slots_.push_back({value.rows, 0, -1});
      best = static_cast<int>(slots_.size()) - 1;
    }
    Slot& slot = slots_[static_cast<size_t>(best)];
    slot.row_bytes = std::max(slot.row_bytes, value.row_bytes);
    slot.last_node = value.last_node;
    value.slot = best;
  }
}

ArenaLayout Plan::Layout(int64_t chunk) const {
  ArenaLayout layout;
  std::vector<size_t> slot_offsets;
  for (const Slot& slot : slots_) {
    const int64_t rows = slot.rows == RowKind::kStep ? chunk : kHeadRows;
    const size_t bytes = slot.row_bytes * static_cast<size_t>(rows);
    slot_offsets.push_back(layout.bytes);
    layout.bytes += bytes;
    if (slot.rows == RowKind::kHead) layout.head_bytes += bytes;
  }
  for (const Value& value : values_) {
    layout.value_offsets.push_back(slot_offsets[static_cast<size_t>(value.slot)]);
  }
  return layout;
}

size_t Plan::ScratchBytes(const StepLimits& limits) const {
  size_t bytes = 0;
  for (const auto* nodes : {&body_, &head_}) {
    for (const auto& node : *nodes) bytes = std::max(bytes, node->ScratchBytes(limits));
  }
  return RoundUp(bytes, kLineBytes);
}

size_t Plan::SharedBytes(const StepLimits& limits) const {
  size_t bytes = 0;
  for (const auto* nodes : {&body_, &head_}) {
    for (const auto& node : *nodes) bytes = std::max(bytes, node->SharedBytes(limits));
  }
  return bytes;
}

std::string Plan::Describe() const {
  std::string text;
  const auto list = [this](const std::vector<ValueId>& ids) {
    std::string names;
    for (const ValueId id : ids) {
      const Value& value = values_[static_cast<size_t>(id)];
      fmt::format_to(std::back_inserter(names), "{}{}@{}", names.empty() ? "" : " ", value.name,
                     value.slot);
    }
    return names;
  };
  fmt::format_to(std::back_inserter(text),
                 "values (N = tokens of the step, R = rows with logits):\n");
  for (size_t i = 0; i < slots_.size(); ++i) {
    fmt::format_to(std::back_inserter(text), "  slot {:<2} {} x {} bytes\n", i,
                   slots_[i].rows == RowKind::kStep ? 'N' : 'R', slots_[i].row_bytes);
  }
  int index = 0;
  for (const auto* nodes : {&body_, &head_}) {
    text +=
        nodes == &body_ ? "body, once per step:\n" : "head, once per pass over rows with logits:\n";
    for (const auto& node : *nodes) {
      fmt::format_to(std::back_inserter(text), "  {:>4} {:<20} {}  ({} -> {})\n", index++,
                     node->name(), node->Describe(), list(node->reads()), list(node->writes()));
    }
  }
  return text;
}

}  // namespace kvant::graph
