// A vector that keys can be stored without.
//
// The softmax of an attention does not change where one number is added to the scores of all
// positions, and q (k - c) = q k - q c is such a change for any vector c that is the same at all
// positions. Keys with a large bias have most of their length in common: in Qwen 2.5 Coder 0.5B the
// bias of a key is up to 279 long, nearly all of it in dimensions that rotate slowly. One scale for
// a whole key then rounds away what tells positions apart. So c is the mean of the rotated bias.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/kernels/rope.h"
#include "engine/graph/rowwise/rope.h"

namespace kvant::arch {

// The mean over positions [0, kOffsetPositions) of a bias, [heads][k_dim], as the rope rotates it;
// the bias itself where `rope` is null. Dimensions that turn many times in between have a mean of
// about 0.
inline constexpr int64_t kOffsetPositions = 4096;
std::vector<float> MeanOfRotated(std::span<const float> bias, int64_t k_dim,
                                 const graph::RopeSpec* rope);

}  // namespace kvant::arch
