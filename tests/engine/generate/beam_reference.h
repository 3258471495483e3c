// Beam search written as naively as possible: every beam is a copy of its whole text, every step
// sorts all candidates, fixed arrays are filled with scores of -1e9 as in Hugging Face's tensors.
// One function for each program's rules, from the description of that program.
//
// Models are functions from a prefix to logits, so that searches over them need no model.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <vector>

#include "engine/evaluate/distribution.h"
#include "kvant/beam_search.h"

namespace kvant::test {

using FakeModel = std::function<std::vector<float>(const std::vector<TokenId>& prefix)>;

struct NaiveBeam {
  std::vector<TokenId> ids;  // generated
  std::vector<float> log_probs;
  std::vector<int32_t> parents;
  float sum = 0;
  float score = 0;
};

class NaiveBeamSearch {
 public:
  NaiveBeamSearch(const BeamOptions& options, int32_t vocab, FakeModel model,
                  std::vector<TokenId> prompt)
      : o_(options), vocab_(vocab), model_(std::move(model)), prompt_(std::move(prompt)) {
    alpha_ = static_cast<double>(o_.length_penalty.value_or(1.0f));
    longest_ = o_.max_new_tokens;
    if (o_.max_length > 0) longest_ = o_.max_length - static_cast<int64_t>(prompt_.size());
  }

  std::vector<NaiveBeam> Run() {
    std::vector<NaiveBeam> found;
    switch (o_.scoring) {
      case BeamScoring::kHf: found = o_.groups == 1 ? Hf() : Scorer(); break;
      case BeamScoring::kOga: found = Scorer(); break;
      case BeamScoring::kCt2: found = Ct2(); break;
      case BeamScoring::kWhisper: found = Whisper(); break;
    }
    ByScore(found);
    std::erase_if(found, [](const NaiveBeam& beam) { return beam.sum < kFilling / 2; });
    found.resize(std::min(found.size(), Size(o_.num_return)));
    return found;
  }

 private:
  static constexpr float kFilling = -1e9f;
  static constexpr float kNever = -std::numeric_limits<float>::infinity();

  static size_t Size(int64_t value) { return static_cast<size_t>(value); }
  static void ByScore(std::vector<NaiveBeam>& beams) {
    std::stable_sort(beams.begin(), beams.end(),
                     [](const auto& a, const auto& b) { return a.score > b.score; });
  }
  static void BySum(std::vector<NaiveBeam>& beams) {
    std::stable_sort(beams.begin(), beams.end(),
                     [](const auto& a, const auto& b) { return a.sum > b.sum; });
  }
  bool Ends(const NaiveBeam& beam) const {
    return std::count(o_.end_tokens.begin(), o_.end_tokens.end(), beam.ids.back()) > 0;
  }
  float Over(float sum, int64_t length) const {
    const auto divisor = static_cast<float>(std::pow(static_cast<double>(length), alpha_));
    return divisor == 0 ? kNever : sum / divisor;
  }
  size_t Keep(size_t beams) const { return std::max<size_t>(2, 1 + o_.end_tokens.size()) * beams; }

  // ---- Log-probabilities ------------------------------------------------------------------------

  static void Softmax(std::vector<float>& row) {
    if (*std::max_element(row.begin(), row.end()) == kNever) return;
    const double log_sum = evaluate::Normalize(row).log_sum;
    for (float& value : row) value = static_cast<float>(static_cast<double>(value) - log_sum);
  }

  void Process(std::vector<float>& row, const std::vector<TokenId>& whole, size_t generated) const {
    // CTranslate2's Generator looks at no token of the prompt.
    std::vector<TokenId> text = whole;
    if (o_.scoring == BeamScoring::kCt2)
      text.erase(text.begin(), text.end() - static_cast<ptrdiff_t>(generated));
    const std::set<TokenId> occurring(text.begin(), text.end());
    for (const TokenId token : occurring) {
      float& value = row[Size(token)];
      value = value < 0 ? value * o_.repetition_penalty : value / o_.repetition_penalty;
    }
    const size_t n = Size(o_.no_repeat_ngram);
    for (size_t end = n; n > 0 && end <= text.size(); ++end) {
      const std::vector<TokenId> gram(text.begin() + static_cast<ptrdiff_t>(end - n),
                                      text.begin() + static_cast<ptrdiff_t>(end));
      std::vector<TokenId> next(text.end() - static_cast<ptrdiff_t>(n - 1), text.end());
      next.push_back(gram.back());
      if (next == gram) row[Size(gram.back())] = kNever;
    }
    Ban(row, BadEndings(text));
    const size_t least =
        o_.min_new_tokens > 0 ? prompt_.size() + Size(o_.min_new_tokens) : Size(o_.min_length);
    if (whole.size() < least) Ban(row, o_.end_tokens);
    if (o_.forced_bos.has_value() && whole.size() == 1) Force(row, {*o_.forced_bos});
    if (!o_.forced_eos.empty() && generated + 1 == Size(longest_)) Force(row, o_.forced_eos);
    Ban(row, o_.suppress);
    size_t begin = prompt_.size();
    if (begin == 1 && o_.forced_bos.has_value()) begin = 2;
    if (whole.size() == begin) Ban(row, o_.begin_suppress);
  }

  static void Ban(std::vector<float>& row, const std::vector<TokenId>& tokens) {
    for (const TokenId token : tokens) row[Size(token)] = kNever;
  }
  static void Force(std::vector<float>& row, const std::vector<TokenId>& tokens) {
    row.assign(row.size(), kNever);
    for (const TokenId token : tokens) row[Size(token)] = 0;
  }

  // Last tokens of the bad words whose other tokens are the text's end.
  std::vector<TokenId> BadEndings(const std::vector<TokenId>& text) const {
    std::vector<TokenId> endings;
    for (const std::vector<TokenId>& word : o_.bad_words) {
      if (o_.scoring == BeamScoring::kHf) {
        const auto& ends = o_.end_tokens;
        if (word.size() == 1 && std::set(ends.begin(), ends.end()).contains(word[0])) continue;
        if (word.size() > 1 && word.size() > text.size()) continue;
      }
      std::vector<TokenId> with = text;
      with.push_back(word.back());
      const bool fits = with.size() >= word.size();
      if (fits && std::equal(word.rbegin(), word.rend(), with.rbegin())) {
        endings.push_back(word.back());
      }
    }
    return endings;
  }

  std::vector<float> LogProbs(const NaiveBeam& beam, const std::vector<TokenId>& taken) const {
    std::vector<TokenId> text = prompt_;
    text.insert(text.end(), beam.ids.begin(), beam.ids.end());
    std::vector<float> row = model_(text);
    const bool on_log_probs = o_.scoring == BeamScoring::kHf && o_.beams > 1;
    if (on_log_probs) Softmax(row);
    for (const TokenId token : taken) row[Size(token)] -= o_.diversity_penalty;
    Process(row, text, beam.ids.size());
    if (!on_log_probs || o_.renormalize) Softmax(row);
    return row;
  }

  // All continuations of the beams, the best first, the first in order among equals.
  std::vector<NaiveBeam> Continuations(const std::vector<NaiveBeam>& beams, int32_t first_parent,
                                       const std::vector<TokenId>& taken = {}) const {
    std::vector<NaiveBeam> all;
    for (size_t b = 0; b < beams.size(); ++b) {
      const std::vector<float> row = LogProbs(beams[b], taken);
      for (TokenId token = 0; token < vocab_; ++token) {
        NaiveBeam next = beams[b];
        next.ids.push_back(token);
        next.log_probs.push_back(row[Size(token)]);
        next.parents.push_back(first_parent + static_cast<int32_t>(b));
        next.sum += row[Size(token)];
        if (next.sum > kNever) all.push_back(next);
      }
    }
    BySum(all);
    return all;
  }

  // ---- Hugging Face -----------------------------------------------------------------------------

  std::vector<NaiveBeam> Hf() const {
    const size_t n = Size(o_.beams);
    const bool at_once = o_.early_stopping == EarlyStopping::kTrue || n == 1;  // one is greedy
    std::vector<NaiveBeam> running(n), finished(n);
    for (size_t b = 1; b < n; ++b) running[b].sum = kFilling;
    for (NaiveBeam& beam : finished) beam.sum = beam.score = kFilling;
    for (int64_t length = 1;; ++length) {
      std::vector<NaiveBeam> list = Continuations(running, 0);
      list.resize(std::min(list.size(), Keep(n)));
      std::vector<NaiveBeam> merged = finished, next;
      for (size_t k = 0; k < list.size(); ++k) {
        const bool stop = length == longest_ || Ends(list[k]);
        if (!stop) next.push_back(list[k]);
        list[k].score = Over(list[k].sum, length);
        if (stop && k < n) merged.push_back(list[k]);
      }
      ByScore(merged);
      merged.resize(n);
      finished = merged;
      next.resize(std::min(n, next.size()));
      const auto empty = [](const NaiveBeam& beam) { return beam.ids.empty(); };
      const bool full = std::none_of(finished.begin(), finished.end(), empty);
      if (next.empty() || (full && at_once)) return Found(finished);
      const bool far = o_.early_stopping == EarlyStopping::kNever && alpha_ > 0;
      const float hope = Over(next[0].sum, far ? longest_ : length);
      if (full && !(hope > finished.back().score)) return Found(finished);
      running = next;
    }
  }

  static std::vector<NaiveBeam> Found(const std::vector<NaiveBeam>& slots) {
    std::vector<NaiveBeam> found;
    for (const NaiveBeam& beam : slots) {
      if (!beam.ids.empty()) found.push_back(beam);
    }
    return found;
  }

  // ---- BeamSearchScorer: groups of Hugging Face, and ONNX Runtime GenAI -------------------------

  struct Group {
    std::vector<NaiveBeam> running, hypotheses;
    bool done = false;
  };

  int64_t ScorerLength(const NaiveBeam& beam, bool ended) const {
    const int64_t generated = static_cast<int64_t>(beam.ids.size());
    if (o_.scoring == BeamScoring::kHf) return generated;
    return static_cast<int64_t>(prompt_.size()) + generated - (ended ? 1 : 0);
  }

  void Add(Group& group, NaiveBeam beam, size_t n, bool ended) const {
    beam.score = Over(beam.sum, ScorerLength(beam, ended));
    group.hypotheses.push_back(beam);
    ByScore(group.hypotheses);
    group.hypotheses.resize(std::min(n, group.hypotheses.size()));
  }

  bool IsDone(const Group& group, float best, int64_t length, size_t n) const {
    if (group.hypotheses.size() < n) return false;
    if (o_.early_stopping == EarlyStopping::kTrue || o_.beams == 1) return true;
    if (o_.scoring == BeamScoring::kOga) {
      length += static_cast<int64_t>(prompt_.size()) - 1;
    } else if (o_.early_stopping == EarlyStopping::kNever && alpha_ > 0) {
      length = longest_;
    }
    return group.hypotheses.back().score >= Over(best, length);
  }

  // Returns the tokens that the group takes.
  std::vector<TokenId> ScorerStep(Group& group, size_t index, size_t n, int64_t length,
                                  const std::vector<TokenId>& taken) const {
    const auto first = static_cast<int32_t>(index * n);
    std::vector<NaiveBeam> list = Continuations(group.running, first, taken);
    list.resize(std::min(list.size(), Keep(n)));
    std::vector<NaiveBeam> next;
    for (size_t k = 0; k < list.size() && next.size() < n; ++k) {
      if (!Ends(list[k])) {
        next.push_back(list[k]);
      } else if (k < n) {
        Add(group, list[k], n, true);
      }
    }
    group.done = list.empty() || IsDone(group, list[0].sum, length, n);
    group.running = next;
    std::vector<TokenId> tokens;
    for (const NaiveBeam& beam : next) tokens.push_back(beam.ids.back());
    return tokens;
  }

  std::vector<NaiveBeam> Scorer() const {
    const size_t n = Size(o_.beams / o_.groups);
    std::vector<Group> groups(Size(o_.groups));
    for (Group& group : groups) {
      group.running.resize(n);
      for (size_t b = 1; b < n; ++b) group.running[b].sum = kFilling;
    }
    for (int64_t length = 1; length <= longest_; ++length) {
      std::vector<TokenId> taken;
      for (size_t g = 0; g < groups.size(); ++g) {
        if (groups[g].done) continue;
        const std::vector<TokenId> tokens = ScorerStep(groups[g], g, n, length, taken);
        taken.insert(taken.end(), tokens.begin(), tokens.end());
      }
    }
    std::vector<NaiveBeam> found;
    for (Group& group : groups) {
      for (const NaiveBeam& beam : group.running) {
        if (!group.done) Add(group, beam, n, false);
      }
      found.insert(found.end(), group.hypotheses.begin(), group.hypotheses.end());
    }
    return found;
  }

  // ---- CTranslate2 ------------------------------------------------------------------------------

  std::vector<NaiveBeam> Ct2() const {
    const size_t n = Size(o_.beams);
    // Its greedy search is another one, which ends with the first end token.
    const auto enough = n == 1 ? 1 : Size(std::lround(o_.patience * static_cast<float>(o_.beams)));
    std::vector<NaiveBeam> alive(1), results;
    bool top_finished = false;
    for (int64_t length = 1; length <= longest_ && !alive.empty(); ++length) {
      std::vector<NaiveBeam> list = Continuations(alive, 0);
      list.resize(std::min(list.size(), Keep(n)));
      std::vector<NaiveBeam> next, spare;
      for (size_t k = n; k < list.size(); ++k) {
        if (!Ends(list[k])) spare.push_back(list[k]);
      }
      size_t spare_used = 0;
      for (size_t k = 0; k < std::min(n, list.size()); ++k) {
        NaiveBeam beam = list[k];
        if (!Ends(beam) && length < longest_) {
          next.push_back(beam);
          continue;
        }
        if (k == 0) top_finished = true;
        const bool uncounted = Ends(beam) && !o_.ct2_length_counts_end;
        beam.score = Over(beam.sum, length - (uncounted ? 1 : 0));
        results.push_back(beam);
        if (spare_used < spare.size()) next.push_back(spare[spare_used++]);
      }
      if (alpha_ == 0 ? top_finished && results.size() >= Size(o_.num_return)
                      : results.size() >= enough) {
        break;
      }
      alive = next;
    }
    return results;
  }

  // ---- Whisper ----------------------------------------------------------------------------------

  std::vector<NaiveBeam> Whisper() const {
    const size_t n = Size(o_.beams);
    const double count = static_cast<double>(o_.patience) * o_.beams;
    const auto enough = Size(static_cast<int64_t>(std::nearbyint(count)));
    std::vector<NaiveBeam> beams(1), finished;
    for (int64_t length = 1; length <= longest_ && !beams.empty(); ++length) {
      std::vector<NaiveBeam> next, ended;
      for (const NaiveBeam& beam : Continuations(beams, 0)) {
        (Ends(beam) ? ended : next).push_back(beam);
        if (next.size() == n) break;
      }
      for (const NaiveBeam& beam : ended) {
        if (finished.size() < enough) finished.push_back(beam);
      }
      beams = next;
      if (finished.size() >= enough) break;
    }
    for (const NaiveBeam& beam : beams) {
      if (finished.size() < n) finished.push_back(beam);
    }
    for (NaiveBeam& beam : finished) {
      const auto length = static_cast<int64_t>(beam.ids.size()) - (Ends(beam) ? 1 : 0);
      const double google = std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha_);
      beam.score = o_.length_penalty.has_value() ? beam.sum / static_cast<float>(google)
                                                 : Over(beam.sum, length);
    }
    return finished;
  }

  BeamOptions o_;
  int32_t vocab_;
  FakeModel model_;
  std::vector<TokenId> prompt_;
  double alpha_ = 1;
  int64_t longest_ = 0;  // generated tokens
};

}  // namespace kvant::test
