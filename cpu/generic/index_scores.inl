// Scores of an indexer (cpu/kernels/index_scores.h), by the products of attention with key tiles.
//
// Included inside an instruction set's namespace and target region, after attention.inl. Blocks of
// heads share registers, and their sums go through a small array to the scores, head by head; so
// neither the blocks nor the vectors change a bit.

// The numbers of the codes of `tiles` key tiles, [tiles][dim][kKeyTileTokens].
template <class Format>
void LoadCodeTiles(const std::byte* keys, int dim, int tiles, float* numbers) {
  for (int tile = 0; tile < tiles; ++tile) {
    const std::byte* codes = keys + KvKeyTileBytes(Format::kType, dim) * static_cast<size_t>(tile);
    for (int d = 0; d < dim; ++d) {
      for (int slot = 0; slot < kKeyTileTokens; ++slot) {
        *numbers++ = static_cast<float>(
            Format::Decode(Format::Key(codes, static_cast<size_t>(slot), static_cast<size_t>(d))));
      }
    }
  }
}

// Adds what a block of heads gives for kTiles adjacent tiles to `sums`, by token.
template <class Factor, int kQueries, int kTiles, class Element>
void AddIndexBlock(const IndexTask& task, int first, const float* packed, const Element* keys,
                   const float* key_scales, float* sums) {
  alignas(64) float products[kQueries * kScoreStride];
  ScoreKeyTiles<Factor, kQueries, kTiles>(packed, task.dim, keys, products);
  for (int q = 0; q < kQueries; ++q) {
    for (int v = 0; v < kTiles * kKeyTileTokens; v += kLanes) {
      F32 product = Load(products + q * kScoreStride + v);
      if (key_scales != nullptr) product = Mul(product, Load(key_scales + v));
      if (task.weights == nullptr) {
        Store(sums + v, product);
        continue;
      }
      const F32 weight = Broadcast(task.weights[first + q]);
      Store(sums + v, MulAdd(weight, Max(Zero(), product), Load(sums + v)));
    }
  }
}

// Scores of kTiles adjacent tiles.
template <int kTiles, class Element>
void ScoreIndexTiles(const IndexTask& task, const float* packed, const Element* keys,
                     const float* key_scales, float* sums) {
  for (int i = 0; i < kTiles * kKeyTileTokens; ++i) sums[i] = 0.0f;
  UseFactors([&]<class Factor>() {
    ForEachBlock(0, task.heads, [&](int first, int count) {
      const float* block = packed + int64_t{first} * task.dim;
      const auto add = [&]<int kQueries>() {
        // As many tiles at a time as this many sums in registers allow.
        constexpr int kWide = BlockWidth(kQueries, kKeyTileVectors);
        constexpr int kStep = kWide < kTiles ? kWide : kTiles;
        for (int tile = 0; tile < kTiles; tile += kStep) {
          const int64_t token = int64_t{tile} * kKeyTileTokens;
          AddIndexBlock<Factor, kQueries, kStep>(
              task, first, block, keys + token * task.dim,
              key_scales == nullptr ? nullptr : key_scales + token, sums + token);
        }
      };
      switch (count) {
        case 1: return add.template operator()<1>();
        case 2: return add.template operator()<2>();
        case 4: return add.template operator()<4>();
        default: return add.template operator()<kBlockQueries>();
      }
    });
  });
}

// Scores of some tiles of a run, as many as there are up to kIndexTiles.
template <class Element>
void ScoreSomeTiles(const IndexTask& task, const float* packed, const Element* keys,
                    const float* key_scales, int tiles, float* sums) {
  for (int tile = 0; tile < tiles;) {
    const int64_t token = int64_t{tile} * kKeyTileTokens;
    const Element* at = keys + token * task.dim;
    const float* scales = key_scales == nullptr ? nullptr : key_scales + token;
    if (tiles - tile >= 4) {
      ScoreIndexTiles<4>(task, packed, at, scales, sums + token);
      tile += 4;
    } else if (tiles - tile >= 2) {
      ScoreIndexTiles<2>(task, packed, at, scales, sums + token);
      tile += 2;
    } else {
      ScoreIndexTiles<1>(task, packed, at, scales, sums + token);
      tile += 1;
    }
  }
}

void ScoreIndexRun(const IndexTask& task, const float* packed, float* numbers, const KvRun& run) {
  const PositionRange seen =
      Intersect({task.begin, task.end}, {run.first_position, run.first_position + run.count});
  alignas(64) float sums[kIndexTiles * kKeyTileTokens];
  for (int64_t p = TileFloor(seen.begin); p < seen.end; p += kIndexTiles * kKeyTileTokens) {
    const int64_t token = p - run.first_position;
    const int tiles =
        static_cast<int>(Least(kIndexTiles, (seen.end - p + kKeyTileTokens - 1) / kKeyTileTokens));
    VisitKvVectorFormat(task.type, [&]<class Format>(Format) {
      const std::byte* keys =
          run.keys + KeyTileOffset(Format::kType, task.dim, static_cast<size_t>(token));
      if constexpr (Format::kHasScales) {
        LoadCodeTiles<Format>(keys, task.dim, tiles, numbers);
        ScoreSomeTiles(task, packed, numbers, KeyScalesOf(run) + token, tiles, sums);
      } else {
        using Number = typename Format::Number;
        ScoreSomeTiles(task, packed, reinterpret_cast<const Number*>(keys), nullptr, tiles, sums);
      }
    });
    const int64_t first = Greatest(p, seen.begin);
    const int64_t end = Least(seen.end, p + tiles * kKeyTileTokens);
    for (int64_t i = first; i < end; ++i) task.scores[i - task.begin] = sums[i - p];
  }
}

void IndexScores(const IndexTask& task) {
  float* packed = reinterpret_cast<float*>(task.scratch.data());
  const int64_t count = int64_t{task.heads} * task.dim;
  float* numbers = packed + (count + 15) / 16 * 16;
  ForEachBlock(0, task.heads, [&](int first, int block) {
    float* to = packed + int64_t{first} * task.dim;
    for (int q = 0; q < block; ++q) {
      const float* query = task.queries + int64_t{first + q} * task.dim;
      for (int d = 0; d < task.dim; ++d) to[d * block + q] = query[d];
    }
  });
  for (const KvRun& run : task.runs) {
    if ((run.rows >> (task.row % kMaskedRowsMax) & 1) == 0) continue;
    if (run.first_position >= task.end) return;
    if (run.first_position + run.count <= task.begin) continue;
    ScoreIndexRun(task, packed, numbers, run);
  }
}
