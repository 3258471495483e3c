// Beam search over the log-probabilities of one request: which beams go on, with which token, and
// what has been found. It knows neither model nor cache.
//
// A caller prefills the prompt once, then repeats: hand over one row of logits for each live beam
// (a single row, that of the prompt, at first), fork or reorder its sequences by parents(), append
// tokens(), compute. Beam groups that are finished have no rows, so rows are not padded.
//
// The search is Hugging Face's `_beam_search` (transformers 4.50 and later, generation/utils.py);
// with groups that of its BeamSearchScorer, which ends a group by its best candidate rather than by
// its best open beam. It differs only where Hugging Face has copies of the prompt with a score of
// -1e9 to fill its tensors: here such beams do not exist, so fewer than `beams` rows may be live.
// CTranslate2's, Whisper's and ONNX Runtime GenAI's rules are those of their sources, without what
// goes wrong there with several end tokens.
//
// A stage that keeps state has a copy for each live beam, which follows the beam as it branches off
// and moves. Where a stage that ends texts leaves no token for a beam, the beam is a hypothesis as
// it is, without an end token.
//
// Sums and scores are floats, as in Hugging Face. Equal sums rank by lower flat index (beam, then
// token id); an equal score ranks after those found before. A seed gives the same draws on every
// machine. Thread-safety: one thread at a time per object. Steps allocate nothing, copies of stages
// apart.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kvant/beam_log_probs.h"
#include "kvant/beam_options.h"
#include "kvant/random.h"
#include "kvant/result.h"

namespace kvant {

struct BeamHypothesis {
  std::vector<TokenId> ids;  // generated, the end token included
  // Log-probability of each token as it was added up: after penalties, filters and temperature.
  std::vector<float> log_probs;
  // The beam, 0 to beams - 1, that each token continued; beams are numbered by rank, groups one
  // after the other. The first token continues the first beam of its group.
  std::vector<int32_t> parents;
  float sum = 0;          // of log_probs
  float score = 0;        // sum / length^penalty; see BeamScoring
  bool ended = false;     // by an end token
  bool no_token = false;  // by a stage that has left no token
};

class BeamSearch {
 public:
  // kInvalid for options that make no sense; see CheckBeamOptions. The tokenizer is for the stages
  // of `logits`; an error of their makers is returned.
  static Result<BeamSearch> Create(const BeamOptions& options, int32_t vocab_size,
                                   const LogitOptions& logits = {},
                                   const Tokenizer* tokenizer = nullptr);

  // Begins a request anew, with the random numbers of the seed. kInvalid for an empty prompt, one
  // for which max_length has no room, or a token outside the vocabulary; the object is unchanged
  // then. Where the model reads a source of its own, the prompt is that of its decoder.
  Status Start(std::span<const TokenId> prompt);

  // Takes the logits, [vocab] each, of the live beams in order. kInvalid, with nothing changed, for
  // another number of rows or another size, or before Start or after the end. kInvalid, and done,
  // if no token can be chosen and nothing has been found. The error of a stage, and done.
  Status Step(std::span<const std::span<const float>> logits);

  // The rows that the next Step expects: 1 after Start, 0 once done.
  int64_t rows() const { return done_ ? 0 : rows_; }
  // The row of the step that each live beam continues, and the token of each live beam.
  std::span<const int32_t> parents() const { return parents_; }
  std::span<const TokenId> tokens() const { return tokens_; }
  bool done() const { return done_; }
  const BeamOptions& options() const { return options_; }
  int64_t generated() const { return generated_; }  // tokens of every live beam

  // The best num_return hypotheses found so far, best first; fewer if there are fewer.
  std::vector<BeamHypothesis> Results() const;
  // A live beam as it is, scored as if it ended here without an end token.
  BeamHypothesis Live(size_t row) const;

 private:
  static constexpr int32_t kNoNode = -1;

  // A generated token. Beams share their beginnings: the history is a tree.
  struct Node {
    TokenId token;
    float log_prob;
    int32_t parent_node;
    int32_t parent_beam;
  };
  struct Beam {
    float sum;
    int32_t node;
    int32_t row;  // its row in the next step's logits; during a step, that of the beam it continues
  };
  struct Candidate {
    double key;  // what it is chosen by: its sum, or that plus Gumbel noise
    float sum;
    float log_prob;
    int32_t beam;  // index in its group
    TokenId token;
  };
  struct Finished {
    float score;
    float sum;
    int32_t node;
    bool no_token = false;
  };
  struct Group {
    int32_t first_beam = 0;          // its first beam's number among those of all groups
    std::vector<Beam> live;          // by rank; none once done
    std::vector<Finished> finished;  // best first, at most finished_max_
    int64_t finished_count = 0;      // those that did not get or stay in included
    bool top_finished = false;       // ct2: the best candidate of some step has ended
    bool done = false;
  };
  enum class Ending : uint8_t { kEndToken, kOpen };

  BeamSearch(const BeamOptions& options, int32_t vocab_size);

  Status StepGroup(size_t index, std::span<const std::span<const float>> logits);
  Status CheckLogits(std::span<const std::span<const float>> logits) const;
  Status Gather(size_t group, std::span<const std::span<const float>> logits);
  void TakeTop(std::span<const float> row, int32_t beam, float sum);
  void Draw(std::span<const float> row, int32_t beam, float sum);
  void Offer(const Candidate& candidate);
  void KeepBest();
  LogitText Text(int32_t node);
  void CollectSharedTokens(size_t groups_before);

  // One step of a group by each program's rules, from candidates_ in order of choice to live,
  // finished and done.
  void StepHf(Group& group);
  void StepScorer(Group& group);
  void StepCt2(Group& group);
  void StepWhisper(Group& group);

  bool IsEnd(const Candidate& candidate) const;
  int32_t AddNode(const Group& group, const Candidate& candidate);
  void Continue(const Group& group, const Candidate& candidate);
  void Finish(Group& group, const Candidate& candidate);
  void FinishLive(Group& group, const Beam& beam);
  void FinishWithoutToken(Group& group, const Beam& beam);
  void Insert(Group& group, const Finished& finished);
  bool CanGain(const Group& group, float best_sum) const;
  float Score(float sum, int64_t generated, Ending ending) const;
  float Divide(float sum, int64_t length) const;
  // ct2: how many tokens of the prompt are part of the text.
  int64_t PromptInText() const;
  bool full(const Group& group) const { return group.finished.size() == finished_max_; }
  bool last_step() const { return generated_ + 1 == generated_max_; }
  void Publish();
  void FollowBeams();
  BeamHypothesis Trace(const Finished& finished) const;

  BeamOptions options_;
  int32_t vocab_size_;
  size_t group_beams_;       // beams of a group
  size_t candidates_max_;    // of a group and step
  size_t finished_max_;      // of a group
  int64_t finished_enough_;  // ct2, whisper: so many finished hypotheses end a search
  double penalty_;

  BeamLogProbs log_probs_;
  bool reads_tokens_ = false;            // some stage does
  bool keeps_state_ = false;             // some stage does
  std::vector<LogitChain> stages_;       // of each live beam if some stage keeps state, else one
  std::vector<LogitChain> next_stages_;  // scratch
  Xoshiro256 random_;
  std::vector<Group> groups_;
  std::vector<Node> nodes_;
  std::vector<Candidate> candidates_;
  double threshold_ = 0;    // what a further candidate's key must exceed
  std::vector<Beam> next_;  // scratch: a group's live beams after the step
  std::vector<TokenId> prompt_;
  std::vector<TokenId> text_;    // scratch: prompt and beam
  std::vector<TokenId> shared_;  // scratch: tokens of this step's beams of earlier groups
  std::vector<int32_t> parents_;
  std::vector<TokenId> tokens_;
  int64_t generated_ = 0;
  int64_t generated_max_ = 0;
  int64_t rows_ = 0;
  bool done_ = true;
};

}  // namespace kvant
