#include "engine/run/memory_places.h"

#include <algorithm>
#include <set>
#include <unordered_set>
#include <vector>

#include "engine/graph/cut.h"
#include "engine/run/core.h"
#include "formats/gguf.h"

namespace kvant::run {
namespace {

// Bytes that lie on one node where weights are spread: long stretches, because rows are read one
// after the other.
constexpr size_t kSpreadBytes = size_t{256} << 10;

// Calls visit(node) for all nodes of all stages.
template <class Visit>
void ForEachNode(const graph::Plan& plan, const Visit& visit) {
  for (size_t stage = 0; stage < graph::kStageCount; ++stage) {
    for (const auto& node : plan.nodes(static_cast<graph::Stage>(stage))) visit(*node);
  }
}

std::span<const std::byte> BytesOf(const formats::GgufTensor& matrix) {
  return {matrix.data, static_cast<size_t>(matrix.size_bytes)};
}

}  // namespace

std::vector<int64_t> NodesOf(const ThreadPlaces& places) {
  const std::set<int64_t> nodes(places.nodes.begin(), places.nodes.end());
  return {nodes.begin(), nodes.end()};
}

std::vector<OwnedBytes> OwnedWeights(const graph::Plan& plan, int64_t threads) {
  std::vector<OwnedBytes> owned;
  std::unordered_set<const std::byte*> seen;  // matrices of nodes before
  const auto shares = int64_t{ThreadPool::SharesOf(static_cast<int>(threads))};
  ForEachNode(plan, [&](const graph::Node& node) {
    std::vector<const std::byte*> of_node;
    for (int64_t share = 0; share < shares; ++share) {
      node.VisitOwnedRows(
          {share, shares}, [&](const formats::GgufTensor& matrix, const Range& rows) {
            if (seen.contains(matrix.data)) return;
            of_node.push_back(matrix.data);
            const int64_t row = matrix.row_bytes();
            owned.push_back(
                {BytesOf(matrix).subspan(static_cast<size_t>(rows.begin * row),
                                         static_cast<size_t>((rows.end - rows.begin) * row)),
                 share * threads / shares});
          });
    }
    seen.insert(of_node.begin(), of_node.end());
  });
  return owned;
}

std::vector<std::span<const std::byte>> SharedWeights(const graph::Plan& plan) {
  std::vector<std::span<const std::byte>> shared;
  std::unordered_set<const std::byte*> seen;
  for (const OwnedBytes& owned : OwnedWeights(plan, 1)) seen.insert(owned.bytes.data());
  ForEachNode(plan, [&](const graph::Node& node) {
    for (const formats::GgufTensor* matrix : node.Matrices()) {
      if (seen.insert(matrix->data).second) shared.push_back(BytesOf(*matrix));
    }
  });
  return shared;
}

PagesPlaced PlaceWeights(const graph::Plan& plan, const ThreadPlaces& places, ThreadPool& team) {
  const std::vector<OwnedBytes> owned = OwnedWeights(plan, team.size());
  const std::vector<std::span<const std::byte>> shared = SharedWeights(plan);
  const std::vector<int64_t> nodes = NodesOf(places);
  std::vector<PagesPlaced> placed(static_cast<size_t>(team.size()));
  team.Run([&](const ThreadPool::Member& member) {
    PagesPlaced& mine = placed[static_cast<size_t>(member.index)];
    for (const OwnedBytes& part : owned) {
      if (part.thread != member.index) continue;
      mine += MovePagesTo(part.bytes, places.nodes[static_cast<size_t>(member.index)]);
    }
    size_t number = 0;
    for (const std::span<const std::byte>& matrix : shared) {
      for (size_t at = 0; at < matrix.size(); at += kSpreadBytes, ++number) {
        if (number % static_cast<size_t>(member.count) != static_cast<size_t>(member.index))
          continue;
        mine += MovePagesTo(matrix.subspan(at, std::min(kSpreadBytes, matrix.size() - at)),
                            nodes[number % nodes.size()]);
      }
    }
  });
  PagesPlaced all;
  for (const PagesPlaced& one : placed) all += one;
  return all;
}

void Core::PlaceMemory() {
  std::vector<const graph::Plan*> plans = {&model->plan()};
  if (model->has_encoder()) plans.push_back(&model->plan(graph::kEncodePlan));
  PagesPlaced weights;
  for (const graph::Plan* plan : plans) weights += PlaceWeights(*plan, places, team);
  counters.weight_pages = static_cast<uint64_t>(weights.pages);
  counters.weight_pages_placed = static_cast<uint64_t>(weights.there);
  if (!cache.has_value()) return;
  const std::vector<int64_t> nodes = NodesOf(places);
  cache->VisitMemory([&nodes](std::span<std::byte> memory) { SpreadPages(memory, nodes); });
}

}  // namespace kvant::run
