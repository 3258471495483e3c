// The kernels for devices, compiled for the host, on random shapes (attention_case.h).
#include "cpu/dispatch.h"
#include "tests/cuda/attention_passes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "tests/this_build.h"

namespace kvant::cuda {

std::vector<double> Case::Reference(const Part& part, int row, int head, double* most) const {
  const size_t number = static_cast<size_t>(&part - parts_.data());
  const int row_position = part.length + row;
  const int kv_head = head / shape_.heads_per_kv;
  const float* query = input_.data() + (part.first_row + row) * stride_ + head * shape_.query_dim();
  std::vector<double> scores;
  std::vector<int> positions;
  for (int position = 0; position <= row_position; ++position) {
    if (!Sees(number, row_position, position)) continue;
    const int block = part.blocks[static_cast<size_t>(position / kBlockPositions)];
    double score = Score(query, block, kv_head, position % kBlockPositions);
    score *= static_cast<double>(scale_);
    if (shape_.cap) score = 1.5 * std::tanh(score / 1.5);
    const int distance = position - row_position;
    if (shape_.slopes) score += static_cast<double>(slopes_[static_cast<size_t>(head)]) * distance;
    if (shape_.distances) {
      const int index = std::clamp(distance - kLeast, 0, kDistances - 1);
      score += static_cast<double>(
          distances_.at(static_cast<size_t>(head) * kDistances + static_cast<size_t>(index)));
    }
    scores.push_back(score);
    positions.push_back(position);
  }
  double greatest = -HUGE_VAL;
  for (const double score : scores) greatest = std::max(greatest, score);
  if (shape_.sinks) {
    greatest = std::max(greatest, static_cast<double>(sinks_[static_cast<size_t>(head)]));
  }
  double total = shape_.sinks
                     ? std::exp(static_cast<double>(sinks_[static_cast<size_t>(head)]) - greatest)
                     : 0;
  std::vector<double> sums(static_cast<size_t>(shape_.v_dim), 0.0);
  for (size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - greatest);
    total += weight;
    const int block = part.blocks[static_cast<size_t>(positions[i] / kBlockPositions)];
    for (int d = 0; d < shape_.v_dim; ++d) {
      const double value = Value(block, kv_head, positions[i] % kBlockPositions, d);
      *most = std::max(*most, std::abs(value));
      sums[static_cast<size_t>(d)] += weight * value;
    }
  }
  for (double& sum : sums) sum = scores.empty() ? 0.0 : sum / total;
  return sums;
}

double Case::Score(const float* query, int block, int head, int slot) const {
  double score = 0;
  if (shape_.key_form == KeyForm::kValueFirst) {
    for (int d = 0; d < shape_.v_dim; ++d) {
      score += static_cast<double>(*query++) * Value(block, head, slot, d);
    }
  }
  for (int d = 0; d < shape_.k_dim; ++d) {
    score += static_cast<double>(*query++) * Key(block, head, slot, d);
  }
  return score;
}

void Case::Check() {
  std::vector<size_t> all;
  for (size_t i = 0; i < parts_.size(); ++i) all.push_back(i);
  const std::vector<float> results = Attend(all, input_);
  double error = 0;
  double most = 0;
  for (const Part& part : parts_) {
    for (int row = 0; row < part.rows; ++row) {
      for (int head = 0; head < heads(); ++head) {
        const std::vector<double> expected = Reference(part, row, head, &most);
        const float* found =
            results.data() + ((part.first_row + row) * heads() + head) * shape_.v_dim;
        for (int d = 0; d < shape_.v_dim; ++d) {
          ASSERT_TRUE(std::isfinite(found[d])) << "row " << row << " head " << head << " dim " << d;
          error = std::max(
              error, std::abs(static_cast<double>(found[d]) - expected[static_cast<size_t>(d)]));
        }
      }
    }
  }
  // Halves of queries and of weights: 11 bits each, and scores of up to some ten.
  EXPECT_LT(error, 4e-3 * most);
}

std::vector<float> Case::ResultsOf(size_t part, bool alone) {
  const int64_t floats = heads() * shape_.v_dim;
  const Part& of = parts_[part];
  if (alone) {
    return Attend({part}, std::vector<float>(input_.begin() + of.first_row * stride_,
                                             input_.begin() + (of.first_row + of.rows) * stride_));
  }
  std::vector<size_t> all;
  for (size_t i = 0; i < parts_.size(); ++i) all.push_back(i);
  const std::vector<float> results = Attend(all, input_);
  return {results.begin() + of.first_row * floats,
          results.begin() + (of.first_row + of.rows) * floats};
}

namespace {

Shape RandomShape(std::mt19937& random) {
  const auto pick = [&random](std::initializer_list<int> from) {
    return from.begin()[random() % from.size()];
  };
  const auto coin = [&random] { return random() % 3 == 0; };
  Shape shape{};
  shape.k_dim = pick({8, 24, 40, 64, 80, 128, 192, 256});
  shape.v_dim = pick({8, 40, 64, 72, 128, 136, 256});
  shape.kv_heads = pick({1, 2, 3});
  shape.heads_per_kv = pick({1, 2, 3, 4, 7, 16});
  shape.k_type = coin() ? Element::kInt8 : Element::kF16;
  shape.v_type = coin() ? Element::kInt8 : Element::kF16;
  shape.window = coin() ? pick({1, 5, 33, 100, 300}) : 0;
  shape.window_kind = coin() ? Window::kSections : Window::kSliding;
  shape.cap = coin();
  shape.slopes = coin();
  shape.sinks = coin();
  shape.distances = coin();
  shape.hidden = coin();
  shape.pruned = shape.hidden && coin();
  return shape;
}

Shape RandomLatents(std::mt19937& random) {
  const auto pick = [&random](std::initializer_list<int> from) {
    return from.begin()[random() % from.size()];
  };
  Shape shape = RandomShape(random);
  shape.k_dim = pick({8, 24, 32, 64, 128});
  shape.v_dim = pick({8, 40, 64, 136, 256, 504, 512, 512});
  shape.kv_heads = 1;
  shape.heads_per_kv = pick({1, 3, 5, 16, 40});
  shape.key_form = KeyForm::kValueFirst;
  return shape;
}

// The device whose kernels are to be tested: KVANT_TEST_OFFLOAD=driver asks for that of the
// machine.
Device* TestedDevice() {
  static const std::shared_ptr<Device> device = [] {
    const char* offload = std::getenv("KVANT_TEST_OFFLOAD");
    if (offload == nullptr || std::string_view(offload) != "driver") {
      return std::shared_ptr<Device>();
    }
    auto opened = Device::Open();
    if (!opened.ok()) throw std::runtime_error(opened.error().message);
    return *std::move(opened);
  }();
  return device.get();
}

Case MakeCase(const Shape& shape, unsigned seed, Rows rows) {
  Case made(shape, seed, rows);
  made.SetDevice(TestedDevice());
  return made;
}

// On a device all of them; the host takes half of them, and with sanitizers, which take ten times
// as long, few.
unsigned Cases(unsigned all) {
  return test::kSanitized ? all / 8 : TestedDevice() != nullptr ? all : all / 2;
}

TEST(CudaAttention, FewRowsOfSequencesThatShareBlocks) {
  std::mt19937 random(1);
  for (unsigned seed = 0; seed < Cases(60); ++seed) {
    SCOPED_TRACE(seed);
    MakeCase(RandomShape(random), seed, Rows::kFew).Check();
    if (HasFatalFailure()) return;
  }
}

TEST(CudaAttention, ManyRowsOfOneSequence) {
  std::mt19937 random(2);
  for (unsigned seed = 0; seed < Cases(24); ++seed) {
    SCOPED_TRACE(seed);
    MakeCase(RandomShape(random), seed, Rows::kMany).Check();
    if (HasFatalFailure()) return;
  }
}

// Rows of many sequences, and of one, in any company.
TEST(CudaAttention, Latents) {
  std::mt19937 random(6);
  for (unsigned seed = 0; seed < Cases(24); ++seed) {
    SCOPED_TRACE(seed);
    Case tested = MakeCase(RandomLatents(random), seed, Rows::kFew);
    tested.Check();
    if (HasFatalFailure()) return;
    for (size_t part = 0; part < tested.parts(); ++part) {
      ASSERT_EQ(tested.ResultsOf(part, true), tested.ResultsOf(part, false)) << part;
    }
  }
}

TEST(CudaAttention, ALongPassOfLatentsGivesTheBitsOfShortOnes) {
  std::mt19937 random(7);
  for (unsigned seed = 0; seed < Cases(8); ++seed) {
    SCOPED_TRACE(seed);
    Case tested = MakeCase(RandomLatents(random), seed, Rows::kMany);
    tested.Check();
    if (HasFatalFailure()) return;
    const std::vector<float> many = tested.ResultsFrom(0);
    const std::vector<float> rest = tested.ResultsFrom(37);
    ASSERT_TRUE(std::equal(rest.begin(), rest.end(), many.end() - std::ssize(rest)));
    tested.SetMany(false);
    ASSERT_EQ(many, tested.ResultsFrom(0));
  }
}

// Nor on where a text is cut into passes.
TEST(CudaAttention, ARowOfALongPassHasTheSameBitsWhereverItBegins) {
  std::mt19937 random(4);
  for (unsigned seed = 0; seed < Cases(16); ++seed) {
    SCOPED_TRACE(seed);
    const Case tested = MakeCase(RandomShape(random), seed, Rows::kMany);
    const std::vector<float> all = tested.ResultsFrom(0);
    for (const int first : {1, 37, 63}) {
      const std::vector<float> rest = tested.ResultsFrom(first);
      ASSERT_TRUE(std::equal(rest.begin(), rest.end(), all.end() - std::ssize(rest))) << first;
    }
  }
}

// Nor on whether spans are merged by the thread block that has computed them, as in a long pass.
TEST(CudaAttention, ALongPassGivesTheBitsOfShortOnes) {
  std::mt19937 random(5);
  for (unsigned seed = 0; seed < Cases(12); ++seed) {
    SCOPED_TRACE(seed);
    Case tested = MakeCase(RandomShape(random), seed, Rows::kMany);
    const std::vector<float> many = tested.ResultsFrom(0);
    tested.SetMany(false);
    ASSERT_EQ(many, tested.ResultsFrom(0));
  }
}

// The bits of a row do not depend on the rows beside it, nor on where in a tile it lies.
TEST(CudaAttention, ARowHasTheSameBitsInAnyCompany) {
  std::mt19937 random(3);
  for (unsigned seed = 0; seed < Cases(30); ++seed) {
    SCOPED_TRACE(seed);
    Case tested = MakeCase(RandomShape(random), seed, Rows::kFew);
    for (size_t part = 0; part < tested.parts(); ++part) {
      ASSERT_EQ(tested.ResultsOf(part, true), tested.ResultsOf(part, false)) << part;
    }
  }
}

// The warps of a thread block wait for each other where they must: whichever comes first, and with
// the thread sanitizer all at once.
TEST(CudaAttention, WarpsMayRunInAnyOrder) {
  std::mt19937 random(8);
  const std::vector<WarpOrder> orders =
      test::kSanitized ? std::vector{WarpOrder::kFree}
                       : std::vector{WarpOrder::kAscending, WarpOrder::kDescending};
  for (unsigned seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Shape shape = seed % 2 == 0 ? RandomShape(random) : RandomLatents(random);
    shape.pruned = seed % 8 < 2;
    Case tested(shape, seed, seed % 4 < 2 ? Rows::kFew : Rows::kMany);
    const std::vector<float> expected = tested.ResultsFrom(0);
    for (const WarpOrder order : orders) {
      tested.SetOrder(order);
      ASSERT_EQ(expected, tested.ResultsFrom(0));
    }
  }
}

// A vector with a number that is not finite makes its own weight or value useless, as on the CPU,
// and nothing else.
TEST(CudaAttention, StoresVectorsThatAreNotFiniteAsTheCpuDoes) {
  const cpu::KernelTable& kernels = *cpu::ChooseKernels("scalar").value();
  for (const float strange : {NAN, INFINITY, -INFINITY, 1e30f, 1e-40f, 0.0f}) {
    std::vector<float> row(24, 0.5f);  // a key of 8 and a value of 8, behind a query
    row[9] = row[18] = strange;
    const int32_t position = 3;
    const int32_t block_number = 0;
    for (const Element element : {Element::kF16, Element::kInt8}) {
      const uint64_t slab = kBlockPositions * 8 * (element == Element::kInt8 ? 1 : 2);
      std::vector<std::byte> memory(2 * slab + 2 * kBlockPositions * sizeof(float));
      StoreParams params{};
      params.blocks = {memory.data(),
                       memory.size(),
                       0,
                       slab,
                       2 * slab,
                       2 * slab + kBlockPositions * sizeof(float),
                       1,
                       8,
                       8,
                       element,
                       element};
      params.tables.positions = &position;
      params.tables.blocks = &block_number;
      params.input = row.data();
      params.input_stride = 24;
      params.key_column = 8;
      params.value_column = 16;
      HostBlock block;
      block.x = block.y = block.z = 0;
      block.shared = nullptr;
      StoreRow(block, params);
      std::vector<std::byte> expected(memory.size());
      auto* scales = reinterpret_cast<float*>(expected.data() + 2 * slab);
      kernels.store_key(row.data() + 8, 8, CpuElement(element), 3, expected.data(), scales + 3);
      kernels.store_value(row.data() + 16, 8, CpuElement(element), 3, expected.data() + slab,
                          scales + kBlockPositions + 3);
      for (size_t i = 0; i < memory.size(); ++i) {
        if (element == Element::kF16 && i >= 2 * slab) break;
        ASSERT_EQ(memory[i], expected[i]) << strange << " byte " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kvant::cuda
