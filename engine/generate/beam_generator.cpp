// Following a search with sequences: one for each live beam.
#include "engine/generate/beam_generator.h"

#include <algorithm>

namespace kvant {
namespace {

// A search and the sequences of its live beams, by rank.
struct Request {
  BeamSearch search;
  std::vector<SequenceId> beams;
  std::vector<int> parents;
  std::vector<std::span<const float>> logits;
  int64_t steps = 0;
  bool cancelled = false;

  bool ended() const { return cancelled || search.done(); }
};

// Frees the sequences of all requests when it goes out of scope.
class Requests {
 public:
  explicit Requests(Runner& runner) : runner_(runner) {}
  ~Requests() {
    for (Request& request : all) Shrink(request, 0);
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  void Shrink(Request& request, size_t count) {
    while (request.beams.size() > count) {
      // Of a sequence that this object made, so it exists.
      (void)runner_.FreeSequence(request.beams.back());
      request.beams.pop_back();
    }
  }

  std::vector<Request> all;

 private:
  Runner& runner_;
};

// Makes the sequences those of the beams that the search goes on with.
Status Follow(Runner& runner, Requests& requests, Request& request) {
  const std::span<const int32_t> parents = request.search.parents();
  while (request.beams.size() < parents.size()) {
    KVANT_ASSIGN(const SequenceId fork, runner.Fork(request.beams.front()));
    request.beams.push_back(fork);
  }
  request.parents.assign(parents.begin(), parents.end());
  request.parents.resize(request.beams.size(), 0);
  KVANT_TRY(runner.Reorder(request.beams, request.parents));
  requests.Shrink(request, parents.size());
  return {};
}

// One step of a request's search from the logits of its beams.
Status Search(Runner& runner, Requests& requests, Request& request) {
  request.logits.clear();
  for (const SequenceId beam : request.beams) request.logits.push_back(runner.logits(beam));
  KVANT_TRY(request.search.Step(request.logits));
  ++request.steps;
  if (request.search.done()) {
    requests.Shrink(request, 0);
    return {};
  }
  return Follow(runner, requests, request);
}

int64_t Room(const Runner& runner, const std::vector<TokenId>& prompt) {
  return runner.options().context - static_cast<int64_t>(prompt.size());
}

Status CheckPrompts(const Runner& runner, std::span<const std::vector<TokenId>> prompts) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (Room(runner, prompts[i]) >= 0) continue;
    return MakeError(ErrorCode::kContextFull,
                     "prompt {} has {} tokens, but the context has room for {}", i,
                     prompts[i].size(), runner.options().context);
  }
  return {};
}

// Adds a request; its prompt is an input of the step to come.
Status Start(Runner& runner, const std::vector<TokenId>& prompt, BeamOptions options,
             Requests& requests, std::vector<StepInput>& inputs) {
  options.max_new_tokens = std::min(options.max_new_tokens, Room(runner, prompt) + 1);
  options.min_new_tokens = std::min(options.min_new_tokens, options.max_new_tokens);
  KVANT_ASSIGN(BeamSearch search, BeamSearch::Create(options, runner.model().vocab_size()));
  KVANT_TRY(search.Start(prompt));
  KVANT_ASSIGN(const SequenceId first, runner.NewSequence());
  requests.all.push_back({std::move(search), {first}, {}, {}});
  inputs.push_back({first, prompt});
  return {};
}

// Steps until all searches are done.
Status SearchAll(Runner& runner, std::span<const std::vector<TokenId>> prompts,
                 const BeamGenerateOptions& options, Requests& requests) {
  const size_t parallel = std::max<size_t>(options.parallel, 1);
  std::vector<StepInput> inputs;
  while (true) {
    inputs.clear();
    size_t under_way = 0;
    for (size_t i = 0; i < requests.all.size(); ++i) {
      Request& request = requests.all[i];
      if (request.ended()) continue;
      KVANT_TRY(Search(runner, requests, request));
      const BeamStep next = options.on_step ? options.on_step(i, request.search) : BeamStep::kGoOn;
      if (next == BeamStep::kEndAll || (options.cancel != nullptr && options.cancel->load())) {
        return MakeError(ErrorCode::kCancelled, "cancelled");
      }
      if (next == BeamStep::kEndRequest && !request.search.done()) {
        request.cancelled = true;
        requests.Shrink(request, 0);
      }
      if (request.ended()) continue;
      ++under_way;
      const std::span<const TokenId> tokens = request.search.tokens();
      for (size_t beam = 0; beam < request.beams.size(); ++beam) {
        inputs.push_back({request.beams[beam], tokens.subspan(beam, 1)});
      }
    }
    for (; requests.all.size() < prompts.size() && under_way < parallel; ++under_way) {
      KVANT_TRY(Start(runner, prompts[requests.all.size()], options.search, requests, inputs));
    }
    if (inputs.empty()) return {};
    KVANT_TRY(runner.Step(inputs));
  }
}

}  // namespace

Result<std::vector<BeamGeneration>> GenerateBeams(Runner& runner,
                                                  std::span<const std::vector<TokenId>> prompts,
                                                  const BeamGenerateOptions& options) {
  KVANT_TRY(CheckPrompts(runner, prompts));
  Requests requests(runner);
  const Status status = SearchAll(runner, prompts, options, requests);
  const bool cancelled = !status.ok() && status.error().code == ErrorCode::kCancelled;
  if (!status.ok() && !cancelled) return status.error();
  std::vector<BeamGeneration> out;
  for (const Request& request : requests.all) {
    BeamGeneration& generation = out.emplace_back();
    generation.hypotheses = request.search.Results();
    generation.steps = request.steps;
    generation.cancelled = request.cancelled || (cancelled && !request.search.done());
    for (size_t row = 0; generation.cancelled && generation.hypotheses.empty() &&
                         row < request.search.tokens().size();
         ++row) {
      generation.hypotheses.push_back(request.search.Live(row));
    }
  }
  return out;
}

}  // namespace kvant
