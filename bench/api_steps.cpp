// api_steps MODEL.gguf: the time of a step of one token through the C++ interface and through the C
// interface, in turn, in microseconds: "cpp 25.1" and "c 25.9", a line for each round. A step draws
// the likeliest token and processes it; 64 steps follow a rewind.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kvant/kvant.h"
#include "kvant/runner.h"
#include "kvant/sampler.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 9;
constexpr int kRewinds = 200;
constexpr int kSteps = 64;

double Microseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// The median over rewinds of the mean time of a step.
double MedianOf(std::vector<double>& times) {
  std::nth_element(times.begin(), times.begin() + kRewinds / 2, times.end());
  return times[kRewinds / 2] / kSteps;
}

kvant::Status Fail(kvant_status status) {
  if (status == KVANT_OK) return {};
  return kvant::Error{kvant::ErrorCode::kInvalid, kvant_last_error(nullptr)};
}

kvant::Result<double> StepsInCpp(kvant::Runner& runner, kvant::SequenceId sequence,
                                 kvant::Sampler& sampler) {
  std::vector<double> times;
  for (int i = 0; i < kRewinds; ++i) {
    KVANT_TRY(runner.Rewind(sequence, 1));
    KVANT_TRY(runner.ComputeLogits(sequence));
    const auto begin = Clock::now();
    for (int step = 0; step < kSteps; ++step) {
      KVANT_ASSIGN(const kvant::TokenId token, sampler.Sample(runner.logits(sequence)));
      sampler.Accept(token);
      KVANT_TRY(runner.Append(sequence, {&token, 1}));
    }
    times.push_back(Microseconds(begin));
  }
  return MedianOf(times);
}

kvant::Result<double> StepsInC(kvant_runner* runner, kvant_sequence sequence,
                               kvant_sampler* sampler) {
  std::vector<double> times;
  for (int i = 0; i < kRewinds; ++i) {
    KVANT_TRY(Fail(kvant_sequence_rewind(runner, sequence, 1, 0)));
    KVANT_TRY(Fail(kvant_sequence_compute_logits(runner, sequence)));
    kvant_token token = 0;
    const auto begin = Clock::now();
    for (int step = 0; step < kSteps; ++step) {
      KVANT_TRY(Fail(kvant_sequence_generate(runner, sequence, sampler, &token)));
    }
    times.push_back(Microseconds(begin));
  }
  return MedianOf(times);
}

kvant::Status Run(const char* path) {
  const kvant::TokenId first = 1;
  KVANT_ASSIGN(const auto model, kvant::Model::Open(path));
  KVANT_ASSIGN(const auto runner, kvant::Runner::Create(model, {.context = 128, .threads = 1}));
  KVANT_ASSIGN(const kvant::SequenceId sequence, runner->NewSequence());
  KVANT_TRY(runner->Append(sequence, {&first, 1}));
  kvant::SamplingOptions greedy;
  greedy.temperature = 0;
  KVANT_ASSIGN(auto sampler, kvant::Sampler::Create(greedy, model->vocab_size()));

  kvant_model* c_model = nullptr;
  kvant_runner* c_runner = nullptr;
  kvant_sampler* c_sampler = nullptr;
  kvant_sequence c_sequence = -1;
  kvant_runner_options options;
  kvant_sampling_options sampling;
  KVANT_TRY(Fail(kvant_model_open(path, nullptr, &c_model)));
  KVANT_TRY(Fail(kvant_runner_options_default(&options, sizeof options)));
  options.context = 128;
  options.threads = 1;
  KVANT_TRY(Fail(kvant_runner_new(c_model, &options, &c_runner)));
  KVANT_TRY(Fail(kvant_sampling_options_default(&sampling, sizeof sampling)));
  sampling.temperature = 0;
  KVANT_TRY(Fail(kvant_sampler_new(nullptr, model->vocab_size(), &sampling, &c_sampler)));
  KVANT_TRY(Fail(kvant_sequence_new(c_runner, &c_sequence)));
  KVANT_TRY(Fail(kvant_sequence_append(c_runner, c_sequence, &first, 1)));

  for (int round = 0; round < kRounds; ++round) {
    KVANT_ASSIGN(const double cpp, StepsInCpp(*runner, sequence, sampler));
    KVANT_ASSIGN(const double c, StepsInC(c_runner, c_sequence, c_sampler));
    std::printf("cpp %.3f\nc %.3f\n", cpp, c);
  }
  kvant_sampler_free(c_sampler);
  kvant_runner_free(c_runner);
  kvant_model_free(c_model);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: api_steps MODEL.gguf\n");
    return 2;
  }
  const kvant::Status status = Run(argv[1]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "api_steps: %s\n", status.error().message.c_str());
  return 1;
}
