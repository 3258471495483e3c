#include "kvant/beam_search.h"
#include "base/counted.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

// History reserved at creation; longer ones grow as they are written.
constexpr int64_t kNodesReserved = 1 << 20;

// A draw of the Gumbel distribution, -ln(-ln(u)). Adding one to each log-probability and taking the
// k largest is drawing k without replacement (Kool et al., 2019).
double Gumbel(Xoshiro256& random) {
  const double uniform = (static_cast<double>(random.Next() >> 11) + 0.5) * 0x1p-53;
  return -PortableLog(-PortableLog(uniform));
}

// CTranslate2 rounds halves away from zero, Python to even. Its greedy search has no patience.
int64_t EnoughFinished(const BeamOptions& options) {
  if (options.scoring == BeamScoring::kCt2 && options.beams == 1) return 1;
  const double count = double{options.patience} * options.beams;
  const double rounded =
      options.scoring == BeamScoring::kWhisper ? std::nearbyint(count) : std::round(count);
  return std::max<int64_t>(1, static_cast<int64_t>(rounded));
}

constexpr auto kBetter = [](const auto& a, const auto& b) {
  if (a.key != b.key) return a.key > b.key;
  return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
};

}  // namespace

Result<BeamSearch> BeamSearch::Create(const BeamOptions& options, int32_t vocab_size,
                                      const LogitOptions& logits, const Tokenizer* tokenizer) {
  KVANT_TRY(CheckBeamOptions(options, vocab_size));
  BeamSearch search(options, vocab_size);
  if (options.scoring != BeamScoring::kCt2) search.options_.ct2_prompt_in_result = false;
  KVANT_TRY(search.log_probs_.Add(logits, tokenizer));
  search.reads_tokens_ = search.log_probs_.stages().reads_tokens();
  search.keeps_state_ = search.log_probs_.stages().keeps_state();
  return search;
}

BeamSearch::BeamSearch(const BeamOptions& options, int32_t vocab_size)
    : options_(options),
      vocab_size_(vocab_size),
      group_beams_(static_cast<size_t>(options.beams / options.groups)),
      candidates_max_(
          static_cast<size_t>(BeamCandidateCount(options, options.beams / options.groups))),
      finished_max_(group_beams_),
      finished_enough_(EnoughFinished(options)),
      penalty_(double{options.length_penalty.value_or(1.0f)}),
      log_probs_(options, vocab_size),
      random_(options.seed) {
  if (options.scoring == BeamScoring::kWhisper) {
    finished_max_ = std::max(finished_max_, static_cast<size_t>(finished_enough_));
  }
  groups_.resize(static_cast<size_t>(options.groups));
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].first_beam = static_cast<int32_t>(g * group_beams_);
    groups_[g].live.reserve(group_beams_);
    groups_[g].finished.reserve(finished_max_);
  }
  next_.reserve(group_beams_);
  candidates_.reserve(2 * candidates_max_);
  shared_.reserve(static_cast<size_t>(options.beams));
  parents_.reserve(static_cast<size_t>(options.beams));
  tokens_.reserve(static_cast<size_t>(options.beams));
  const int64_t longest = options.max_length > 0 ? options.max_length : options.max_new_tokens;
  const int64_t nodes = 2 * int64_t{options.beams} * longest;
  nodes_.reserve(static_cast<size_t>(std::min(nodes, kNodesReserved)));
}

Status BeamSearch::Start(std::span<const TokenId> prompt) {
  if (prompt.empty()) return MakeError(ErrorCode::kInvalid, "beam search: the prompt is empty");
  for (const TokenId token : prompt) {
    if (token >= 0 && token < vocab_size_) continue;
    return MakeError(ErrorCode::kInvalid,
                     "beam search: token {} of the prompt is outside the vocabulary of {}", token,
                     vocab_size_);
  }
  const int64_t room = NewTokensMax(options_, prompt.size());
  if (room < 1) {
    return MakeError(ErrorCode::kInvalid,
                     "max-length: expected more than {}, as the prompt has, found {}",
                     Counted(prompt.size(), "token"), options_.max_length);
  }
  generated_max_ = room;
  prompt_.assign(prompt.begin(), prompt.end());
  if (reads_tokens_) text_.reserve(prompt.size() + static_cast<size_t>(generated_max_));
  stages_.assign(1, log_probs_.stages());
  for (size_t i = 0; keeps_state_ && i < prompt.size(); ++i) {
    const bool is_text = options_.ct2_prompt_in_result && i > 0;
    stages_[0].Accept(prompt[i], is_text ? TokenFrom::kText : TokenFrom::kPrompt);
  }
  nodes_.clear();
  for (Group& group : groups_) {
    group.live.assign(1, {0.0f, kNoNode, 0});
    group.finished.clear();
    group.finished_count = 0;
    group.top_finished = group.done = false;
  }
  parents_.clear();
  tokens_.clear();
  random_ = Xoshiro256(options_.seed);
  generated_ = 0;
  rows_ = 1;
  done_ = false;
  return {};
}

Status BeamSearch::CheckLogits(std::span<const std::span<const float>> logits) const {
  if (done_) return MakeError(ErrorCode::kInvalid, "beam search: a step without a running request");
  if (logits.size() != static_cast<size_t>(rows_)) {
    return MakeError(ErrorCode::kInvalid, "beam search: expected {} rows of logits, found {}",
                     rows_, logits.size());
  }
  for (const std::span<const float> row : logits) {
    if (row.size() == static_cast<size_t>(vocab_size_)) continue;
    return MakeError(ErrorCode::kInvalid, "beam search: expected {} logits, found {}", vocab_size_,
                     row.size());
  }
  return {};
}

Status BeamSearch::Step(std::span<const std::span<const float>> logits) {
  KVANT_TRY(CheckLogits(logits));
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].done) continue;
    const Status status = StepGroup(g, logits);
    if (status.ok()) continue;
    done_ = true;
    return status;
  }
  ++generated_;
  Publish();
  const auto found = [](const Group& group) { return !group.finished.empty(); };
  if (done_ && std::none_of(groups_.begin(), groups_.end(), found)) {
    return MakeError(ErrorCode::kInvalid, "beam search: no token has a finite logit");
  }
  return {};
}

Status BeamSearch::StepGroup(size_t index, std::span<const std::span<const float>> logits) {
  KVANT_TRY(Gather(index, logits));
  Group& group = groups_[index];
  next_.clear();
  if (options_.scoring == BeamScoring::kCt2) {
    StepCt2(group);
  } else if (options_.scoring == BeamScoring::kWhisper) {
    StepWhisper(group);
  } else if (options_.scoring == BeamScoring::kOga || options_.groups > 1) {
    StepScorer(group);
  } else {
    StepHf(group);
  }
  return {};
}

// Numbers the rows of the next step.
void BeamSearch::Publish() {
  parents_.clear();
  tokens_.clear();
  rows_ = 0;
  done_ = true;
  for (Group& group : groups_) {
    if (group.done) group.live.clear();
    done_ = done_ && group.done;
    for (Beam& beam : group.live) {
      parents_.push_back(beam.row);
      tokens_.push_back(nodes_[static_cast<size_t>(beam.node)].token);
      beam.row = static_cast<int32_t>(rows_++);
    }
  }
  if (keeps_state_) FollowBeams();
}

// Gives every live beam the stages of its parent, which then accept its token.
void BeamSearch::FollowBeams() {
  next_stages_.clear();
  for (size_t row = 0; row < parents_.size(); ++row) {
    next_stages_.push_back(stages_[static_cast<size_t>(parents_[row])]);
    next_stages_.back().Accept(tokens_[row], TokenFrom::kText);
  }
  std::swap(stages_, next_stages_);
}

// ---- Candidates ---------------------------------------------------------------------------------

// Fills candidates_ with the best continuations of a beam group's live beams, in order of choice.
Status BeamSearch::Gather(size_t index, std::span<const std::span<const float>> logits) {
  Group& group = groups_[index];
  candidates_.clear();
  threshold_ = double{kLogitNone};
  CollectSharedTokens(index);
  for (size_t beam = 0; beam < group.live.size(); ++beam) {
    const Beam& live = group.live[beam];
    const auto at = static_cast<size_t>(live.row);
    KVANT_ASSIGN(const std::span<const float> row,
                 log_probs_.Process(logits[at], Text(live.node), stages_[keeps_state_ ? at : 0]));
    if (row.empty()) {
      FinishWithoutToken(group, live);
    } else if (options_.sample) {
      Draw(row, static_cast<int32_t>(beam), live.sum);
    } else {
      TakeTop(row, static_cast<int32_t>(beam), live.sum);
    }
  }
  KeepBest();
  std::sort(candidates_.begin(), candidates_.end(), kBetter);
  return {};
}

// Most of a row is beaten by what is there already: pieces of it are passed over at once.
void BeamSearch::TakeTop(std::span<const float> row, int32_t beam, float sum) {
  constexpr size_t kPiece = 64;
  for (size_t begin = 0; begin < row.size(); begin += kPiece) {
    const size_t end = std::min(row.size(), begin + kPiece);
    const float limit = static_cast<float>(threshold_);  // a sum, so exact
    int above = 0;
    for (size_t token = begin; token < end; ++token) above |= row[token] + sum > limit ? 1 : 0;
    if (above == 0) continue;
    for (size_t token = begin; token < end; ++token) {
      const float total = row[token] + sum;
      Offer({double{total}, total, row[token], beam, static_cast<TokenId>(token)});
    }
  }
}

void BeamSearch::Draw(std::span<const float> row, int32_t beam, float sum) {
  for (size_t token = 0; token < row.size(); ++token) {
    const float total = row[token] + sum;
    if (!(total > kLogitNone)) continue;
    Offer({double{total} + Gumbel(random_), total, row[token], beam, static_cast<TokenId>(token)});
  }
}

// Takes a candidate, unless as many before it were at least as good.
void BeamSearch::Offer(const Candidate& candidate) {
  if (!(candidate.key > threshold_)) return;
  candidates_.push_back(candidate);
  if (candidates_.size() < 2 * candidates_max_) return;
  KeepBest();
  threshold_ = candidates_.back().key;
}

// Cuts to candidates_max_, the worst of them last.
void BeamSearch::KeepBest() {
  if (candidates_.size() <= candidates_max_) return;
  const auto last = candidates_.begin() + static_cast<ptrdiff_t>(candidates_max_) - 1;
  std::nth_element(candidates_.begin(), last, candidates_.end(), kBetter);
  candidates_.resize(candidates_max_);
}

// Prompt and beam; their tokens only if anything looks at them.
LogitText BeamSearch::Text(int32_t node) {
  LogitText text = {.tokens = {},
                    .prompt = std::ssize(prompt_),
                    .generated = generated_,
                    .generated_max = generated_max_,
                    .shared = shared_};
  if (!reads_tokens_) return text;
  text_.assign(prompt_.begin(), prompt_.end());
  text_.resize(prompt_.size() + static_cast<size_t>(generated_));
  for (size_t i = text_.size(); node != kNoNode;) {
    const Node& entry = nodes_[static_cast<size_t>(node)];
    text_[--i] = entry.token;
    node = entry.parent_node;
  }
  text.tokens = text_;
  return text;
}

// The live beams of earlier groups have this step's tokens already; groups that were done before
// have none.
void BeamSearch::CollectSharedTokens(size_t groups_before) {
  shared_.clear();
  for (const Group& group : std::span(groups_).first(groups_before)) {
    for (const Beam& beam : group.live) {
      shared_.push_back(nodes_[static_cast<size_t>(beam.node)].token);
    }
  }
}

// ---- A step of each program ---------------------------------------------------------------------

// Candidates of rank below the number of beams finish if they end, or if this is the last step.
void BeamSearch::StepHf(Group& group) {
  const size_t finishing = std::min(group_beams_, candidates_.size());
  for (size_t rank = 0; rank < finishing; ++rank) {
    if (last_step() || IsEnd(candidates_[rank])) Finish(group, candidates_[rank]);
  }
  // Drawn candidates are in the order of the draw; beams go on by their sums, a single one by the
  // first draw.
  if (options_.sample && group_beams_ > 1) {
    for (Candidate& candidate : candidates_) candidate.key = double{candidate.sum};
    std::sort(candidates_.begin(), candidates_.end(), kBetter);
  }
  for (const Candidate& candidate : candidates_) {
    if (last_step() || next_.size() == group_beams_) break;
    if (!IsEnd(candidate)) Continue(group, candidate);
  }
  std::swap(group.live, next_);
  group.done = group.live.empty() || (full(group) && !CanGain(group, group.live[0].sum));
}

// Hugging Face's BeamSearchScorer, and ONNX Runtime GenAI's, which was modelled on it.
void BeamSearch::StepScorer(Group& group) {
  for (size_t rank = 0; rank < candidates_.size() && next_.size() < group_beams_; ++rank) {
    const Candidate& candidate = candidates_[rank];
    if (!IsEnd(candidate)) {
      Continue(group, candidate);
    } else if (rank < group_beams_) {
      Finish(group, candidate);
    }
  }
  std::swap(group.live, next_);
  group.done = candidates_.empty() || (full(group) && !CanGain(group, candidates_[0].sum));
  if (last_step() && !group.done) {
    for (const Beam& beam : group.live) FinishLive(group, beam);
  }
  group.done = group.done || last_step() || group.live.empty();
}

// A beam that finishes gives its place to the next candidate beyond the first `beams`. Right behind
// a prefix, candidates that end are lost with their place, but for the best.
void BeamSearch::StepCt2(Group& group) {
  const size_t first = std::min(group_beams_, candidates_.size());
  const bool behind_prefix = generated_ == 0 && PromptInText() > 0;
  size_t spare = first;
  for (size_t rank = 0; rank < first; ++rank) {
    if (behind_prefix && rank > 0 && IsEnd(candidates_[rank])) continue;
    const bool finished = last_step() || IsEnd(candidates_[rank]);
    if (!finished) {
      Continue(group, candidates_[rank]);
      continue;
    }
    if (rank == 0) group.top_finished = true;
    Finish(group, candidates_[rank]);
    while (!behind_prefix && spare < candidates_.size() && IsEnd(candidates_[spare])) ++spare;
    if (last_step() || spare == candidates_.size()) continue;
    if (!IsEnd(candidates_[spare])) Continue(group, candidates_[spare]);
    ++spare;
  }
  std::swap(group.live, next_);
  const bool enough = penalty_ == 0
                          ? group.top_finished && group.finished_count >= options_.num_return
                          : group.finished_count >= finished_enough_;
  group.done = last_step() || enough || group.live.empty();
}

// Whatever ends before `beams` open beams are found is finished, until there are enough; open beams
// fill up the list at the end.
void BeamSearch::StepWhisper(Group& group) {
  for (const Candidate& candidate : candidates_) {
    if (next_.size() == group_beams_) break;
    if (!IsEnd(candidate)) {
      Continue(group, candidate);
    } else if (group.finished_count < finished_enough_) {
      Finish(group, candidate);
    }
  }
  std::swap(group.live, next_);
  group.done = last_step() || group.finished_count >= finished_enough_ || group.live.empty();
  if (!group.done) return;
  for (const Beam& beam : group.live) {
    if (group.finished.size() >= group_beams_) break;
    FinishLive(group, beam);
  }
}

// ---- Beams and hypotheses -----------------------------------------------------------------------

bool BeamSearch::IsEnd(const Candidate& candidate) const {
  const auto& ends = options_.end_tokens;
  return std::find(ends.begin(), ends.end(), candidate.token) != ends.end();
}

int32_t BeamSearch::AddNode(const Group& group, const Candidate& candidate) {
  const int32_t parent = group.live[static_cast<size_t>(candidate.beam)].node;
  nodes_.push_back(
      {candidate.token, candidate.log_prob, parent, group.first_beam + candidate.beam});
  return static_cast<int32_t>(nodes_.size() - 1);
}

void BeamSearch::Continue(const Group& group, const Candidate& candidate) {
  const int32_t row = group.live[static_cast<size_t>(candidate.beam)].row;
  next_.push_back({candidate.sum, AddNode(group, candidate), row});
}

void BeamSearch::Finish(Group& group, const Candidate& candidate) {
  ++group.finished_count;
  const Ending ending = IsEnd(candidate) ? Ending::kEndToken : Ending::kOpen;
  const float score = Score(candidate.sum, generated_ + 1, ending);
  if (full(group) && !(score > group.finished.back().score)) return;
  Insert(group, {score, candidate.sum, AddNode(group, candidate)});
}

// A beam that this step has made live.
void BeamSearch::FinishLive(Group& group, const Beam& beam) {
  ++group.finished_count;
  const float score = Score(beam.sum, generated_ + 1, Ending::kOpen);
  if (full(group) && !(score > group.finished.back().score)) return;
  Insert(group, {score, beam.sum, beam.node});
}

// A live beam, as it was before this step.
void BeamSearch::FinishWithoutToken(Group& group, const Beam& beam) {
  ++group.finished_count;
  const float score = Score(beam.sum, generated_, Ending::kOpen);
  if (full(group) && !(score > group.finished.back().score)) return;
  Insert(group, {score, beam.sum, beam.node, true});
}

// Drops the worst of a full list.
void BeamSearch::Insert(Group& group, const Finished& finished) {
  if (full(group)) group.finished.pop_back();
  const auto worse = [](const Finished& a, const Finished& b) { return a.score > b.score; };
  const auto place =
      std::upper_bound(group.finished.begin(), group.finished.end(), finished, worse);
  group.finished.insert(place, finished);
}

// Whether a full list may still change, going by the best sum. Called before generated_ counts the
// step.
bool BeamSearch::CanGain(const Group& group, float best_sum) const {
  // A single beam ends with its first end token: that is greedy search.
  if (options_.early_stopping == EarlyStopping::kTrue || options_.beams == 1) return false;
  int64_t length = generated_ + 1;
  if (options_.scoring == BeamScoring::kOga) {
    length = static_cast<int64_t>(prompt_.size()) + generated_;
  } else if (options_.early_stopping == EarlyStopping::kNever && penalty_ > 0) {
    length = generated_max_;
  }
  return Divide(best_sum, length) > group.finished.back().score;
}

}  // namespace kvant
