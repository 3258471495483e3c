// Every float GEMM backend of the build against double precision, alone and from several threads at
// once, under signals, and the choice by name and environment.
#include "cpu/float_gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "tests/cpu/isa_test.h"

namespace kvant::cpu {
namespace {

struct GemmProblem {
  int64_t rows;
  int64_t cols;
  int64_t tokens;
  std::vector<float> weights;
  std::vector<float> activations;
  int64_t activation_stride;
  int64_t out_stride;

  GemmProblem(int64_t rows_in, int64_t cols_in, int64_t tokens_in)
      : rows(rows_in),
        cols(cols_in),
        tokens(tokens_in),
        weights(static_cast<size_t>(rows * cols)),
        activation_stride(cols + 3),
        out_stride(rows + 5) {
    activations.resize(static_cast<size_t>(tokens * activation_stride));
    std::mt19937 random(static_cast<uint32_t>(rows * 31 + cols));
    std::normal_distribution<float> normal;
    for (float& value : weights) value = normal(random);
    for (float& value : activations) value = normal(random);
  }

  std::vector<float> Run(const FloatGemm& gemm, Store store) const {
    std::vector<float> out(static_cast<size_t>(tokens * out_stride), 7.0f);
    gemm.run(weights.data(), rows, cols, activations.data(), activation_stride, tokens, out.data(),
             out_stride, store);
    return out;
  }

  void ExpectCorrect(const std::vector<float>& out, float before) const {
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t row = 0; row < out_stride; ++row) {
        const float found = out[static_cast<size_t>(token * out_stride + row)];
        if (row >= rows) {
          ASSERT_EQ(found, 7.0f) << "written beyond row " << rows;
          continue;
        }
        double expected = before;
        double magnitude = std::abs(before);
        for (int64_t col = 0; col < cols; ++col) {
          const double product = double{weights[static_cast<size_t>(row * cols + col)]} *
                                 activations[static_cast<size_t>(token * activation_stride + col)];
          expected += product;
          magnitude += std::abs(product);
        }
        ASSERT_NEAR(found, expected, static_cast<double>(cols + 1) * test::kRounding * magnitude);
      }
    }
  }
};

class FloatGemmTest : public testing::TestWithParam<FloatGemm> {};

TEST_P(FloatGemmTest, MatchesDoublePrecision) {
  for (const auto& [rows, cols, tokens] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                           {16, 172, 64},
                                           {61, 344, 77},
                                           {64, 512, 65}}) {
    const GemmProblem problem(rows, cols, tokens);
    problem.ExpectCorrect(problem.Run(GetParam(), Store::kSet), 0.0f);
    problem.ExpectCorrect(problem.Run(GetParam(), Store::kAdd), 7.0f);
  }
}

TEST_P(FloatGemmTest, OutputsAreNotReadWhenSet) {
  const GemmProblem problem(16, 64, 64);
  std::vector<float> out(static_cast<size_t>(problem.tokens * problem.out_stride), NAN);
  GetParam().run(problem.weights.data(), problem.rows, problem.cols, problem.activations.data(),
                 problem.activation_stride, problem.tokens, out.data(), problem.out_stride,
                 Store::kSet);
  for (int64_t i = 0; i < problem.tokens * problem.out_stride; ++i) {
    EXPECT_EQ(std::isnan(out[static_cast<size_t>(i)]), i % problem.out_stride >= problem.rows);
  }
}

TEST_P(FloatGemmTest, ThreadsAtOnceGetTheSameBits) {
  const GemmProblem problem(64, 256, 96);
  const std::vector<float> expected = problem.Run(GetParam(), Store::kSet);
  std::vector<std::vector<float>> found(4);
  std::vector<std::thread> threads;
  for (std::vector<float>& out : found) {
    threads.emplace_back([&] { out = problem.Run(GetParam(), Store::kSet); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& out : found) test::ExpectSameBits(out, expected, GetParam().name);
}

// The libraries; the others are the kernels that the matmul tests cover.
std::vector<FloatGemm> Libraries() {
  std::vector<FloatGemm> libraries;
  for (const FloatGemm& gemm : AllFloatGemms()) {
    if (gemm.run != nullptr) libraries.push_back(gemm);
  }
  return libraries;
}

// Where the handler of a signal finds its frame: on the stack of its thread, or elsewhere.
std::atomic<uintptr_t> stack_begin;
std::atomic<uintptr_t> stack_end;
std::atomic<int> signals_on_stack;
std::atomic<int> signals_elsewhere;

void CountSignal(int) {
  const int here = 0;
  const auto address = reinterpret_cast<uintptr_t>(&here);
  const bool on_stack = address >= stack_begin && address < stack_end;
  ++(on_stack ? signals_on_stack : signals_elsewhere);
}

TEST_P(FloatGemmTest, SignalsFindAStack) {
  pthread_attr_t attributes;
  void* stack = nullptr;
  size_t stack_bytes = 0;
  ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  ASSERT_EQ(pthread_attr_getstack(&attributes, &stack, &stack_bytes), 0);
  pthread_attr_destroy(&attributes);
  stack_begin = reinterpret_cast<uintptr_t>(stack);
  stack_end = stack_begin + stack_bytes;
  signals_on_stack = signals_elsewhere = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = CountSignal;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);

  const GemmProblem problem(96, 1024, 96);
  const std::vector<float> expected = problem.Run(GetParam(), Store::kSet);
  std::atomic<bool> done = false;
  std::thread sender([&, receiver = pthread_self()] {
    while (!done) pthread_kill(receiver, SIGUSR1);
  });
  while (signals_on_stack + signals_elsewhere < 300) {
    EXPECT_EQ(problem.Run(GetParam(), Store::kSet), expected);
  }
  done = true;
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(signals_elsewhere, 0);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FloatGemmTest);
INSTANTIATE_TEST_SUITE_P(Library, FloatGemmTest, testing::ValuesIn(Libraries()),
                         [](const testing::TestParamInfo<FloatGemm>& library) {
                           return std::string(library.param.name);
                         });

TEST(FloatGemmChoiceTest, ByName) {
  for (const FloatGemm& gemm : AllFloatGemms()) {
    EXPECT_EQ(ChooseFloatGemm(gemm.name).value(), &gemm);
  }
  EXPECT_EQ(ChooseFloatGemm("").value(), &AllFloatGemms().front());
  EXPECT_STREQ(AllFloatGemms().front().name, "panels");
  EXPECT_STREQ(AllFloatGemms().back().name, "own");
}

TEST(FloatGemmChoiceTest, UnknownNameIsAnError) {
  const auto chosen = ChooseFloatGemm("mkl");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(chosen.error().message, testing::HasSubstr("'mkl'"));
}

TEST(FloatGemmChoiceTest, LibrariesAreAbsentOrPresentButKnown) {
  for (const char* name : {"onednn", "openblas"}) {
    const auto chosen = ChooseFloatGemm(name);
    if (chosen.ok()) continue;
    EXPECT_EQ(chosen.error().code, ErrorCode::kNotSupported);
  }
}

TEST(FloatGemmChoiceTest, EnvironmentNamesTheBackend) {
  ASSERT_EQ(setenv("KVANT_FLOAT_GEMM", "own", 1), 0);
  EXPECT_STREQ(ChooseFloatGemmFromEnvironment().value()->name, "own");
  ASSERT_EQ(setenv("KVANT_FLOAT_GEMM", "none", 1), 0);
  EXPECT_THAT(ChooseFloatGemmFromEnvironment().error().message,
              testing::HasSubstr("KVANT_FLOAT_GEMM"));
  ASSERT_EQ(unsetenv("KVANT_FLOAT_GEMM"), 0);
  EXPECT_EQ(ChooseFloatGemmFromEnvironment().value(), &AllFloatGemms().front());
}

}  // namespace
}  // namespace kvant::cpu
