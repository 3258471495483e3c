#include "engine/run/replay.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "engine/graph/run_stage.h"

namespace kvant::run {

using graph::RowSpace;
using graph::Stage;

Result<std::unique_ptr<PlanReplay>> PlanReplay::Create(const graph::Plan& plan, ThreadPool& team,
                                                       const Options& options) {
  std::unique_ptr<PlanReplay> replay(new PlanReplay(plan, team, options));
  KVANT_TRY(replay->Prepare());
  return replay;
}

Status PlanReplay::Prepare() {
  pass_.limits.chunk = options_.rows;
  pass_.limits.context = options_.rows;
  pass_.limits.shares = ThreadPool::SharesOf(team_.size());
  pass_.limits.texts = true;
  layout_ = plan_.Layout(options_.rows);
  KVANT_ASSIGN(arena_, AlignedBuffer::Allocate(layout_.bytes, "activations"));
  pass_.scratch_bytes = plan_.ScratchBytes(pass_.limits);
  KVANT_ASSIGN(scratch_, AlignedBuffer::Allocate(
                             pass_.scratch_bytes * static_cast<size_t>(team_.size()), "scratch"));
  KVANT_ASSIGN(shared_,
               AlignedBuffer::Allocate(plan_.SharedBytes(pass_.limits), "partial results"));
  arrivals_ = std::vector<std::atomic<int32_t>>(static_cast<size_t>(pass_.limits.shares));
  for (const graph::RopeSpec& rope : plan_.ropes()) {
    ropes_.push_back({rope.Frequencies(options_.rows), rope.amplitude});
  }
  positions_.resize(static_cast<size_t>(options_.rows));
  std::iota(positions_.begin(), positions_.end(), 0);
  pass_.arena = arena_.data();
  pass_.value_offsets = layout_.value_offsets;
  pass_.values = plan_.values();
  pass_.ropes = ropes_;
  pass_.scratch = scratch_.data();
  pass_.shared = shared_.bytes();
  pass_.arrivals = arrivals_;
  return {};
}

bool PlanReplay::IsAlive(const graph::Value& value, size_t node) const {
  return graph::InfoOf(value.rows).stage == Stage::kBody &&
         value.first_node < static_cast<int>(node) && value.last_node >= static_cast<int>(node);
}

std::span<std::byte> PlanReplay::BytesOf(size_t value) {
  const auto id = static_cast<graph::ValueId>(value);
  return {pass_.Bytes(id), static_cast<size_t>(pass_.RowCount(id)) * pass_.RowBytes(id)};
}

bool PlanReplay::Knows(const WindowValues& values) const {
  if (values.node > nodes()) return false;
  return std::ranges::all_of(plan_.values(), [&](const graph::Value& value) {
    return !IsAlive(value, values.node) ||
           std::ranges::any_of(values.values, [&](const WindowValues::Value& kept) {
             return kept.name == value.name && kept.kind == value.kind;
           });
  });
}

void PlanReplay::Restore(const WindowValues& values) {
  for (size_t i = 0; i < plan_.values().size(); ++i) {
    const graph::Value& value = plan_.values()[i];
    if (!IsAlive(value, values.node)) continue;
    const auto kept = std::ranges::find_if(values.values, [&](const WindowValues::Value& found) {
      return found.name == value.name && found.kind == value.kind;
    });
    KVANT_CHECK(kept != values.values.end());
    const std::span<std::byte> bytes = BytesOf(i);
    KVANT_CHECK(kept->bytes.size() == bytes.size());
    std::memcpy(bytes.data(), kept->bytes.data(), bytes.size());
  }
}

void PlanReplay::Keep(WindowValues& values) {
  values.values.clear();
  for (size_t i = 0; i < plan_.values().size(); ++i) {
    const graph::Value& value = plan_.values()[i];
    if (!IsAlive(value, values.node)) continue;
    const std::span<const std::byte> bytes = BytesOf(i);
    values.values.push_back({value.name, value.kind, {bytes.begin(), bytes.end()}});
  }
}

Status PlanReplay::Run(std::span<const TokenId> tokens, size_t end, WindowValues& values) {
  KVANT_CHECK(std::ssize(tokens) <= options_.rows);
  pass_.tokens = tokens;
  pass_.positions = std::span(positions_).first(tokens.size());
  text_ = {.rows = std::ssize(tokens)};
  pass_.texts = {&text_, 1};
  pass_.rows.Set(RowSpace::kPass, std::ssize(tokens));
  Restore(values);
  KVANT_TRY(graph::RunStage(plan_, Stage::kBody, pass_, team_,
                            {.cancel = options_.cancel, .first = values.node, .end = end}));
  values.node = std::min(end, nodes());
  Keep(values);
  return {};
}

Status PlanReplay::RunHead(int64_t first, const OnRow& on_row) {
  return RunHeadTo(plan_.nodes(Stage::kHead).size(), plan_.logits(), first, on_row);
}

// The last node of the head that multiplies.
size_t PlanReplay::OutputNode() const {
  const graph::NodeList& head = plan_.nodes(Stage::kHead);
  size_t node = head.size();
  while (head[node - 1]->Matrices().empty()) --node;
  return node - 1;
}

const formats::GgufTensor& PlanReplay::output() const {
  return *plan_.nodes(Stage::kHead)[OutputNode()]->Matrices().front();
}

Status PlanReplay::RunBeforeOutput(int64_t first, const OnRow& on_row) {
  const size_t node = OutputNode();
  const std::vector<graph::ValueId>& reads = plan_.nodes(Stage::kHead)[node]->reads();
  const auto floats = std::ranges::find_if(reads, [&](graph::ValueId id) {
    return pass_.ValueOf(id).kind == cpu::ActivationKind::kFloat32;
  });
  KVANT_CHECK(floats != reads.end());
  return RunHeadTo(node, *floats, first, on_row);
}

Status PlanReplay::RunHeadTo(size_t end, graph::ValueId value, int64_t first, const OnRow& on_row) {
  const int64_t rows = pass_.rows[RowSpace::kPass];
  const auto cols = static_cast<size_t>(pass_.ValueOf(value).cols);
  for (; first < rows; first += graph::kHeadRows) {
    head_.clear();
    for (int64_t row = first; row < std::min(rows, first + graph::kHeadRows); ++row) {
      head_.push_back(row);
    }
    pass_.head = head_;
    pass_.rows.Set(RowSpace::kHead, std::ssize(head_));
    KVANT_TRY(graph::RunStage(plan_, Stage::kHead, pass_, team_,
                              {.cancel = options_.cancel, .end = end}));
    team_.Run([&](const ThreadPool::Member& member) {
      for (size_t i = static_cast<size_t>(member.index); i < head_.size();
           i += static_cast<size_t>(member.count)) {
        on_row(head_[i], {pass_.FloatRow(value, static_cast<int64_t>(i)), cols});
      }
    });
  }
  return {};
}

}  // namespace kvant::run
