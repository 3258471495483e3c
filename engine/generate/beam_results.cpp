// The scores of hypotheses, and the results of a search.
#include <algorithm>
#include <limits>

#include "engine/generate/portable_math.h"
#include "kvant/beam_search.h"

namespace kvant {
namespace {

// length^penalty in operations that are the same everywhere.
double Power(double length, double penalty) {
  if (penalty == 0) return 1;
  if (length == 0) return penalty > 0 ? 0 : std::numeric_limits<double>::infinity();
  return PortableExp(penalty * PortableLog(length));
}

}  // namespace

// The score of a hypothesis of `generated` tokens, an end token included.
float BeamSearch::Score(float sum, int64_t generated, Ending ending) const {
  const int64_t open = generated - (ending == Ending::kEndToken ? 1 : 0);
  switch (options_.scoring) {
    case BeamScoring::kHf: return Divide(sum, generated);
    case BeamScoring::kOga: return Divide(sum, static_cast<int64_t>(prompt_.size()) + open);
    case BeamScoring::kCt2: {
      const bool counts_end = options_.ct2_length_counts_end || options_.ct2_prompt_in_result;
      return Divide(sum, PromptInText() + (counts_end ? generated : open));
    }
    case BeamScoring::kWhisper: break;
  }
  if (!options_.length_penalty.has_value()) return Divide(sum, open);
  const double length = static_cast<double>(5 + open) / 6;
  return sum / static_cast<float>(Power(length, penalty_));
}

int64_t BeamSearch::PromptInText() const {
  return options_.ct2_prompt_in_result ? std::ssize(prompt_) - 1 : 0;
}

// sum / length^penalty; -infinity for an empty text whose score would be undefined.
float BeamSearch::Divide(float sum, int64_t length) const {
  const auto divisor = static_cast<float>(Power(static_cast<double>(length), penalty_));
  return divisor == 0 ? kLogitNone : sum / divisor;
}

std::vector<BeamHypothesis> BeamSearch::Results() const {
  std::vector<const Finished*> found;
  for (const Group& group : groups_) {
    for (const Finished& finished : group.finished) found.push_back(&finished);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Finished* a, const Finished* b) { return a->score > b->score; });
  found.resize(std::min(found.size(), static_cast<size_t>(options_.num_return)));
  std::vector<BeamHypothesis> results;
  for (const Finished* finished : found) results.push_back(Trace(*finished));
  return results;
}

BeamHypothesis BeamSearch::Live(size_t row) const {
  for (const Group& group : groups_) {
    for (const Beam& beam : group.live) {
      if (static_cast<size_t>(beam.row) != row) continue;
      return Trace({Score(beam.sum, generated_, Ending::kOpen), beam.sum, beam.node});
    }
  }
  return {};
}

BeamHypothesis BeamSearch::Trace(const Finished& finished) const {
  BeamHypothesis result;
  result.sum = finished.sum;
  result.score = finished.score;
  result.no_token = finished.no_token;
  for (int32_t i = finished.node; i != kNoNode;) {
    const Node& node = nodes_[static_cast<size_t>(i)];
    result.ids.push_back(node.token);
    result.log_probs.push_back(node.log_prob);
    result.parents.push_back(node.parent_beam);
    i = node.parent_node;
  }
  std::reverse(result.ids.begin(), result.ids.end());
  std::reverse(result.log_probs.begin(), result.log_probs.end());
  std::reverse(result.parents.begin(), result.parents.end());
  const auto& ends = options_.end_tokens;
  result.ended =
      !result.ids.empty() && std::find(ends.begin(), ends.end(), result.ids.back()) != ends.end();
  return result;
}

}  // namespace kvant
