// The generators against published outputs, and exp and log against long double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/generate/portable_math.h"
#include "kvant/random.h"

namespace kvant {
namespace {

// Source: the reference vectors of Rust's rand_xoshiro (made with the authors' C code), state
// {1, 2, 3, 4}.
TEST(Random, Xoshiro256MatchesPublishedVector) {
  Xoshiro256 random(Xoshiro256::State{1, 2, 3, 4});
  const uint64_t expected[] = {
      11520u,
      0u,
      1509978240u,
      1215971899390074240u,
      1216172134540287360u,
      607988272756665600u,
      16172922978634559625u,
      8476171486693032832u,
      10595114339597558777u,
      2904607092377533576u,
  };
  for (const uint64_t value : expected) EXPECT_EQ(random.Next(), value);
}

// Source: the reference vector of rand_xoshiro (made with the authors' C code), seed
// 1477776061723855037.
TEST(Random, SplitMix64MatchesPublishedVector) {
  SplitMix64 random(1477776061723855037u);
  const uint64_t expected[] = {
      1985237415132408290u, 2979275885539914483u,  13511426838097143398u,
      8488337342461049707u, 15141737807933549159u,
  };
  for (const uint64_t value : expected) EXPECT_EQ(random.Next(), value);
}

TEST(Random, BelowStaysBelowAndReachesEveryValue) {
  for (const uint64_t bound : {1u, 2u, 3u, 7u, 8u, 10u}) {
    Xoshiro256 random(5);
    std::vector<int> seen(bound);
    for (int i = 0; i < 2000; ++i) {
      const uint64_t value = random.Below(bound);
      ASSERT_LT(value, bound);
      ++seen[value];
    }
    for (const int count : seen) EXPECT_NEAR(count, 2000.0 / static_cast<double>(bound), 150);
  }
}

// Distance in units in the last place of the exact value.
double UlpError(double got, long double exact) {
  const double rounded = static_cast<double>(exact);
  const double ulp = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact)) / ulp;
}

TEST(PortableMath, ExpIsWithinTwoUlp) {
  Xoshiro256 random(1);
  for (int i = 0; i < 50000; ++i) {
    const double unit = static_cast<double>(random.Next() >> 11) * 0x1p-53;
    const double scale = i % 2 == 0 ? 700.0 : 2.0;
    const double x = (2 * unit - 1) * scale;
    ASSERT_LE(UlpError(PortableExp(x), std::exp(static_cast<long double>(x))), 2.0) << x;
  }
}

TEST(PortableMath, LogIsWithinTwoUlp) {
  Xoshiro256 random(2);
  for (int i = 0; i < 50000; ++i) {
    // Any positive normal number, and numbers near 1 where the result cancels.
    const uint64_t bits = 0x0010000000000000u + random.Below(0x7fe0000000000000u);
    const double any = std::bit_cast<double>(bits);
    const double near_one = 1.0 + (static_cast<double>(random.Next() >> 11) * 0x1p-53 - 0.5) * 0.01;
    const double x = i % 2 == 0 ? any : near_one;
    ASSERT_LE(UlpError(PortableLog(x), std::log(static_cast<long double>(x))), 2.0) << x;
  }
}

// Rows of every length up to two rounds of lanes, and values at the borders of the reductions.
TEST(PortableMath, RowsHaveTheBitsOfSingleValues) {
  Xoshiro256 random(3);
  const auto unit = [&] { return static_cast<double>(random.Next() >> 11) * 0x1p-53; };
  for (int i = 0; i < 4000; ++i) {
    std::vector<double> exps;
    std::vector<double> logs;
    for (int k = 0; k < i % 40; ++k) {
      const double x = -unit() * (k % 3 == 0 ? 700.0 : 30.0);
      const double half =
          (std::round(x) + 0.5) * 0.69314718055994530942;  // where e's power changes
      exps.push_back(k % 5 == 0 && half <= 0 ? half : x);
      const uint64_t bits = 0x0010000000000000u + random.Below(0x7fe0000000000000u);
      const double weight = std::floor(unit() * 0x1p40) + 1;
      logs.push_back(k % 3 == 0 ? std::bit_cast<double>(bits) : weight);
    }
    exps.insert(exps.end(), {0.0, -0.0, -700.0});
    logs.insert(logs.end(), {1.0, 0x1.6a09e667f3bcdp-1, 0x1.6a09e667f3bccp-1, 0x1p40});
    std::vector<double> exps_of_row = exps;
    std::vector<double> logs_of_row = logs;
    PortableExps(exps_of_row);
    PortableLogs(logs_of_row);
    for (size_t k = 0; k < exps.size(); ++k) {
      ASSERT_EQ(std::bit_cast<uint64_t>(exps_of_row[k]),
                std::bit_cast<uint64_t>(PortableExp(exps[k])))
          << exps[k];
    }
    for (size_t k = 0; k < logs.size(); ++k) {
      ASSERT_EQ(std::bit_cast<uint64_t>(logs_of_row[k]),
                std::bit_cast<uint64_t>(PortableLog(logs[k])))
          << logs[k];
    }
  }
}

TEST(PortableMath, EdgesAreDefined) {
  EXPECT_EQ(PortableExp(0.0), 1.0);
  EXPECT_EQ(PortableExp(-INFINITY), 0.0);
  EXPECT_EQ(PortableExp(-1e300), 0.0);
  EXPECT_EQ(PortableExp(1e300), INFINITY);
  EXPECT_TRUE(std::isfinite(PortableExp(709.0)));
  EXPECT_TRUE(std::isnan(PortableExp(NAN)));
  EXPECT_EQ(PortableLog(1.0), 0.0);
  EXPECT_EQ(PortableLog(0.0), -INFINITY);
  EXPECT_TRUE(std::isnan(PortableLog(-1.0)));
  EXPECT_TRUE(std::isnan(PortableLog(INFINITY)));
}

// A hash of many results: it must be the same on every machine and compiler.
TEST(PortableMath, BitsArePinned) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a over 64-bit words
  for (int i = 0; i < 10000; ++i) {
    const double x = i * 0.0173 - 90.0;
    hash = (hash ^ std::bit_cast<uint64_t>(PortableExp(x))) * 1099511628211u;
    hash = (hash ^ std::bit_cast<uint64_t>(PortableLog(x + 91.0))) * 1099511628211u;
  }
  EXPECT_EQ(hash, 10158217957575435663u);
}

}  // namespace
}  // namespace kvant
