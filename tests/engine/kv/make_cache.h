// A cache for tests of it, whose options are right.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "engine/kv/kv_cache.h"

namespace kvant::kv {

inline Cache MakeCache(const CacheOptions& options) {
  auto cache = Cache::Create(options);
  EXPECT_TRUE(cache.ok());
  return std::move(*cache);
}

}  // namespace kvant::kv
