// Lifetimes, slots and the printed form of a plan.
#include "engine/graph/plan.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/cut.h"

namespace kvant::graph {
namespace {

constexpr size_t kLineBytes = 64;

// Bits of ScratchRecord::product that hold the number of a node.
constexpr int kNodeNumberBits = 20;

// One thread normalizes or rotates this many values in about two microseconds, which is also what
// a barrier of the team takes.
constexpr int64_t kNarrowValues = 8192;

// The bytes of a value for each row of its space.
size_t BytesPerRow(const Value& value) {
  return value.row_bytes * static_cast<size_t>(value.per_row);
}

size_t Distance(size_t a, size_t b) { return a > b ? a - b : b - a; }

}  // namespace

Width WidthOfRows(int64_t rows, int64_t cols) {
  return rows == 1 || rows * cols <= kNarrowValues ? Width::kOne : Width::kTeam;
}

std::vector<ShareWork> Node::SharesOf(const PassShape& pass, int64_t shares) const {
  Work work;
  AddWork(pass, work);
  const int64_t units = UnitsOf(pass);
  std::vector<ShareWork> result(static_cast<size_t>(shares));
  for (size_t i = 0; i < result.size() && units > 0; ++i) {
    const Range range = OwnedRange(units, 1, static_cast<int>(i), static_cast<int>(shares));
    result[i].units = static_cast<double>(range.end - range.begin);
    result[i].work = work * (result[i].units / static_cast<double>(units));
  }
  return result;
}

void PassContext::Quantize(const cpu::KernelTable& kernels, const float* from, int64_t count,
                           const RecordColumn& to) const {
  kernels.Quantize(TokenCount(to.id), from, count, RecordAt(to.id, to.row, to.cols, to.col));
}

cpu::ArrangedActivations& PassContext::Arranged(const ThreadPool::Member& member,
                                                const Node& node) const {
  auto& record = *reinterpret_cast<ScratchRecord*>(ThreadScratch(member).data());
  const uint64_t product = run << kNodeNumberBits | static_cast<uint64_t>(node.number());
  if (record.product != product) record = {product, {}};
  return record.arranged;
}

ValueId Plan::AddValue(std::string name, RowSpace rows, int64_t cols, cpu::ActivationKind kind,
                       int64_t per_row) {
  const size_t bytes = kind == cpu::ActivationKind::kInt8
                           ? cpu::ActivationRowBytes(cols)
                           : static_cast<size_t>(cols) * sizeof(float);
  values_.push_back({std::move(name), rows, cols, kind, RoundUp(bytes, kLineBytes), per_row});
  return static_cast<ValueId>(values_.size() - 1);
}

const formats::GgufTensor* Plan::AddMatrix(DerivedMatrix matrix) {
  matrices_.push_back(std::make_unique<DerivedMatrix>(std::move(matrix)));
  DerivedMatrix& kept = *matrices_.back();
  kept.tensor.name = kept.name;
  kept.tensor.data = kept.bytes.data();
  kept.tensor.size_bytes = kept.bytes.size();
  return &kept.tensor;
}

const formats::GgufTensor* Plan::AddPart(const formats::GgufTensor& tensor, int64_t index) {
  formats::GgufTensor part = tensor;
  part.dims[2] = 1;
  part.n_dims = 2;
  part.size_bytes = static_cast<uint64_t>(part.rows() * part.row_bytes());
  part.data += index * part.rows() * part.row_bytes();
  parts_.push_back(std::make_unique<formats::GgufTensor>(part));
  return parts_.back().get();
}

size_t Plan::derived_bytes() const {
  size_t bytes = 0;
  for (const auto& matrix : matrices_) bytes += matrix->bytes.size();
  return bytes;
}

void Plan::AddNode(Stage stage, std::unique_ptr<Node> node) {
  node->number_ = std::accumulate(
      stages_.begin(), stages_.end(), 0,
      [](int sum, const NodeList& nodes) { return sum + static_cast<int>(nodes.size()); });
  KVANT_CHECK(node->number_ < 1 << kNodeNumberBits);
  node->tail_offset_ = tail_floats_;
  tail_floats_ += node->TailFloats();
  const std::vector<ValueId>& values = node->writes().empty() ? node->reads() : node->writes();
  if (!values.empty()) node->rows_ = ValueOf(values.front()).rows;
  stages_[static_cast<size_t>(stage)].push_back(std::move(node));
}

void Plan::ReplaceLast(Stage stage, std::unique_ptr<Node> node) {
  NodeList& nodes = stages_[static_cast<size_t>(stage)];
  KVANT_CHECK(!nodes.empty() && nodes.back()->TailFloats() == 0);
  nodes.pop_back();
  AddNode(stage, std::move(node));
}

std::optional<int> Plan::FindCacheLayer(const CacheLayer& layer) const {
  const auto found = std::find(cache_layers_.begin(), cache_layers_.end(), layer);
  if (found == cache_layers_.end()) return {};
  return static_cast<int>(found - cache_layers_.begin());
}

int Plan::AddCacheLayer(const CacheLayer& layer) {
  cache_layers_.push_back(layer);
  return static_cast<int>(cache_layers_.size()) - 1;
}

int Plan::AddRope(RopeSpec rope) {
  ropes_.push_back(std::move(rope));
  return static_cast<int>(ropes_.size()) - 1;
}

// Nodes are counted through all stages. What a later stage reads stays alive to the end of the
// plan, and a value of its own takes no such slot, because the stage may be run several times.
void Plan::FindLifetimes() {
  int end = 0;
  for (const NodeList& nodes : stages_) end += static_cast<int>(nodes.size());
  int index = 0;
  for (const NodeList& nodes : stages_) {
    const int stage_begin = index;
    for (const auto& node : nodes) {
      for (const auto* list : {&node->reads(), &node->writes()}) {
        for (const ValueId id : *list) {
          Value& value = ValueOf(id);
          if (value.first_node < 0) value.first_node = index;
          value.last_node = value.first_node < stage_begin ? end : std::max(value.last_node, index);
        }
      }
      ++index;
    }
  }
  for (const Value& value : values_) KVANT_CHECK(value.first_node >= 0);
  for (const ValueId result : {logits_, encoded_}) {
    if (result != kNoValue) ValueOf(result).last_node = end;
  }
}

// The free slot of the value's row space whose row size is nearest to the value's, or a new slot.
Plan::Slot& Plan::SlotFor(Value& value) {
  int best = -1;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.rows != value.rows || slot.last_node >= value.first_node) continue;
    const size_t wanted = BytesPerRow(value);
    if (best < 0 || Distance(slot.row_bytes, wanted) <
                        Distance(slots_[static_cast<size_t>(best)].row_bytes, wanted)) {
      best = static_cast<int>(i);
    }
  }
  if (best < 0) {
    best = static_cast<int>(slots_.size());
    slots_.push_back({value.rows, 0, -1});
  }
  value.slot = best;
  return slots_[static_cast<size_t>(best)];
}

void Plan::Finish() {
  FindLifetimes();
  std::vector<Value*> order;  // by first node
  for (Value& value : values_) order.push_back(&value);
  std::stable_sort(order.begin(), order.end(),
                   [](const Value* a, const Value* b) { return a->first_node < b->first_node; });
  for (Value* value : order) {
    Slot& slot = SlotFor(*value);
    slot.row_bytes = std::max(slot.row_bytes, BytesPerRow(*value));
    slot.last_node = value->last_node;
  }
}

ArenaLayout Plan::Layout(int64_t chunk) const {
  ArenaLayout layout;
  std::vector<size_t> slot_offsets;
  for (const Slot& slot : slots_) {
    const size_t bytes = slot.row_bytes * static_cast<size_t>(InfoOf(slot.rows).most_rows(chunk));
    slot_offsets.push_back(layout.bytes);
    layout.bytes += bytes;
    layout.bytes_of[slot.rows] += bytes;
  }
  for (const Value& value : values_) {
    layout.value_offsets.push_back(slot_offsets[static_cast<size_t>(value.slot)]);
  }
  return layout;
}

size_t Plan::ScratchBytes(const PassLimits& limits) const {
  size_t bytes = 0;
  for (const NodeList& nodes : stages_) {
    for (const auto& node : nodes) bytes = std::max(bytes, node->ScratchBytes(limits));
  }
  return sizeof(ScratchRecord) + RoundUp(bytes, kLineBytes);
}

size_t Plan::SharedBytes(const PassLimits& limits) const {
  size_t bytes = 0;
  for (const NodeList& nodes : stages_) {
    for (const auto& node : nodes) bytes = std::max(bytes, node->SharedBytes(limits));
  }
  return bytes;
}

size_t Plan::DeviceBytes(const PassLimits& limits) const {
  size_t bytes = 0;
  for (const NodeList& nodes : stages_) {
    for (const auto& node : nodes) bytes = std::max(bytes, node->DeviceBytes(limits));
  }
  return bytes;
}

Work Plan::WorkOf(const PassShape& pass) const {
  Work work;
  for (const NodeList& nodes : stages_) {
    for (const auto& node : nodes) node->AddWork(pass, work);
  }
  return work;
}

int64_t Plan::CountPhases(Stage stage, const RowCounts& rows) const {
  return std::count_if(nodes(stage).begin(), nodes(stage).end(),
                       [&rows](const auto& node) { return node->WidthOf(rows) == Width::kTeam; });
}

std::string Plan::Describe() const {
  std::string text = fmt::format("plan {}\n", name_);
  const auto out = std::back_inserter(text);
  const auto list = [this](const std::vector<ValueId>& ids) {
    std::string names;
    for (const ValueId id : ids) {
      const Value& value = values_[static_cast<size_t>(id)];
      fmt::format_to(std::back_inserter(names), "{}{}@{}", names.empty() ? "" : " ", value.name,
                     value.slot);
    }
    return names;
  };
  text += "values, whose rows are\n";
  for (size_t i = 0; i < kRowSpaceCount; ++i) {
    const auto space = static_cast<RowSpace>(i);
    if (std::ranges::find(slots_, space, &Slot::rows) == slots_.end()) continue;
    fmt::format_to(out, "  {} = {}\n", InfoOf(space).symbol, InfoOf(space).what);
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    fmt::format_to(out, "  slot {:<2} {} x {} bytes\n", i, InfoOf(slots_[i].rows).symbol,
                   slots_[i].row_bytes);
  }
  for (size_t stage = 0; stage < kStageCount; ++stage) {
    if (stages_[stage].empty()) continue;
    RowCounts one;
    for (size_t i = 0; i < kRowSpaceCount; ++i) one.Set(static_cast<RowSpace>(i), 1);
    fmt::format_to(out, "{}, phases for one row: {}\n", kStageNames[stage],
                   CountPhases(static_cast<Stage>(stage), one));
    for (const auto& node : stages_[stage]) {
      fmt::format_to(out, "  {:>4} {:<20} {}  ({} -> {})\n", node->number(), node->name(),
                     node->Describe(), list(node->reads()), list(node->writes()));
    }
  }
  return text;
}

}  // namespace kvant::graph
