// Products of strips with 5 to 63 tokens in AVX-512 VNNI. Included inside the target region of
// matmul.cpp, after int8_panel.inl, whose registers and instructions it shares, and
// matmul_panel.inl.
//
// A tile is 32 rows by four to six tokens. It sums up a track of the strip in registers, then the
// next. Between strips the sums of tracks are in memory; those of the last are added in the order
// in which Sum() of int8_blocks.inl adds lanes. An item ends in three operations, those of
// AddScaled() there: a conversion (the integer sum starts at the bits of kDotOrigin, so that it is
// a subtraction of floats), the product of both scales, an FMA.

// Tokens of a tile.
constexpr int kStripTokensMin = 4, kStripTokensMax = kPanelTokens;
// Vectors of sums of a track.
constexpr int64_t kTrackSums = kStripTokensMax * kPanelVectors;

// clang-format off
#define KVANT_STRIP_TOKENS_4(op) \
  op(r8, 12, 13, 0, 1) op(r9, 14, 15, 2, 3) op(r10, 16, 17, 4, 5) op(r11, 18, 19, 6, 7)
#define KVANT_STRIP_TOKENS_5(op) KVANT_STRIP_TOKENS_4(op) op(r12, 20, 21, 8, 9)
#define KVANT_STRIP_TOKENS_6(op) KVANT_STRIP_TOKENS_5(op) op(r13, 22, 23, 10, 11)

#define KVANT_STRIP_ZERO(record, dot0, dot1, total0, total1) \
  "vpxord %%zmm" #total0 ", %%zmm" #total0 ", %%zmm" #total0 "\n\t" \
  "vpxord %%zmm" #total1 ", %%zmm" #total1 ", %%zmm" #total1 "\n\t"
#define KVANT_STRIP_LOAD(record, dot0, dot1, total0, total1) \
  KVANT_LOAD_TOTAL(total0) KVANT_LOAD_TOTAL(total1)
#define KVANT_STRIP_START(record, dot0, dot1, total0, total1) KVANT_START(0, record, dot0, dot1)
#define KVANT_STRIP_ADD(record, dot0, dot1, total0, total1) \
  "vaddps 64*" #total0 "(%%rax), %%zmm" #total0 ", %%zmm" #total0 "\n\t" \
  "vaddps 64*" #total1 "(%%rax), %%zmm" #total1 ", %%zmm" #total1 "\n\t"
#define KVANT_STRIP_STORE(record, dot0, dot1, total0, total1) \
  KVANT_STORE_TOTAL(total0) KVANT_STORE_TOTAL(total1)

#define KVANT_STRIP_WEIGHTS(line) \
  "vmovdqa64 128*" #line "(%[items]), %%zmm24\n\t" \
  "vmovdqa64 128*" #line "+64(%[items]), %%zmm25\n\t"
#define KVANT_STRIP_LINE_4(line) \
  KVANT_STRIP_WEIGHTS(line) \
  KVANT_BROADCAST(line, r8, 26) KVANT_BROADCAST(line, r9, 27) \
  KVANT_PRODUCTS(26, 12, 13) KVANT_BROADCAST(line, r10, 28) \
  KVANT_PRODUCTS(27, 14, 15) KVANT_BROADCAST(line, r11, 29) \
  KVANT_PRODUCTS(28, 16, 17) KVANT_PRODUCTS(29, 18, 19)
#define KVANT_STRIP_LINE_5(line) \
  KVANT_STRIP_WEIGHTS(line) \
  KVANT_BROADCAST(line, r8, 26) KVANT_BROADCAST(line, r9, 27) \
  KVANT_PRODUCTS(26, 12, 13) KVANT_BROADCAST(line, r10, 28) \
  KVANT_PRODUCTS(27, 14, 15) KVANT_BROADCAST(line, r11, 29) \
  KVANT_PRODUCTS(28, 16, 17) KVANT_BROADCAST(line, r12, 30) \
  KVANT_PRODUCTS(29, 18, 19) KVANT_PRODUCTS(30, 20, 21)
#define KVANT_STRIP_LINE_6(line) \
  KVANT_STRIP_WEIGHTS(line) \
  KVANT_BROADCAST(line, r8, 26) KVANT_BROADCAST(line, r9, 27) \
  KVANT_PRODUCTS(26, 12, 13) KVANT_BROADCAST(line, r10, 28) \
  KVANT_PRODUCTS(27, 14, 15) KVANT_BROADCAST(line, r11, 29) \
  KVANT_PRODUCTS(28, 16, 17) KVANT_BROADCAST(line, r12, 30) \
  KVANT_PRODUCTS(29, 18, 19) KVANT_BROADCAST(line, r13, 26) \
  KVANT_PRODUCTS(30, 20, 21) KVANT_PRODUCTS(26, 22, 23)
#define KVANT_STRIP_LINES_4(line) line(0) line(1) line(2) line(3)
#define KVANT_STRIP_LINES_8(line) \
  KVANT_STRIP_LINES_4(line) line(4) line(5) line(6) line(7)

// total += (dot - origin) * (scale * the activations' scale)
#define KVANT_STRIP_SCALE(record, dot0, dot1, total0, total1) \
  "vbroadcastss (%%" #record ", %[scales]), %%zmm28\n\t" \
  "vsubps %%zmm31, %%zmm" #dot0 ", %%zmm" #dot0 "\n\t" \
  "vsubps %%zmm31, %%zmm" #dot1 ", %%zmm" #dot1 "\n\t" \
  "vmulps %%zmm28, %%zmm24, %%zmm29\n\t" \
  "vmulps %%zmm28, %%zmm25, %%zmm30\n\t" \
  "vfmadd231ps %%zmm29, %%zmm" #dot0 ", %%zmm" #total0 "\n\t" \
  "vfmadd231ps %%zmm30, %%zmm" #dot1 ", %%zmm" #total1 "\n\t"
// total -= offset * (sum of the activations)
#define KVANT_STRIP_OFFSET(record, dot0, dot1, total0, total1) \
  "vbroadcastss (%%" #record ", %[sums]), %%zmm28\n\t" \
  "vfnmadd231ps %%zmm28, %%zmm26, %%zmm" #total0 "\n\t" \
  "vfnmadd231ps %%zmm28, %%zmm27, %%zmm" #total1 "\n\t"
#define KVANT_STRIP_SCALES(at) \
  "vmovaps 64*" #at "(%[items]), %%zmm24\n\t" "vmovaps 64*" #at "+64(%[items]), %%zmm25\n\t"
#define KVANT_STRIP_OFFSETS(at) \
  "vmovaps 64*" #at "(%[items]), %%zmm26\n\t" "vmovaps 64*" #at "+64(%[items]), %%zmm27\n\t"

#define KVANT_MULTIPLY_TRACK(tokens, item) \
  asm volatile( \
      tokens(KVANT_STRIP_ZERO) \
      "mov %[from], %%rax\n\t" \
      "test %%rax, %%rax\n\t" \
      "jz 0f\n\t" \
      tokens(KVANT_STRIP_LOAD) \
      "0:\n\t" \
      "mov %[records], %%rax\n\t" \
      "mov (%%rax), %%r8\n\t" "mov 8(%%rax), %%r9\n\t" "mov 16(%%rax), %%r10\n\t" \
      "mov 24(%%rax), %%r11\n\t" "mov 32(%%rax), %%r12\n\t" "mov 40(%%rax), %%r13\n\t" \
      "vbroadcastss %[origin], %%zmm31\n\t" \
      "mov %[count], %%rax\n\t" \
      "test %%rax, %%rax\n\t" \
      "jz 2f\n\t" \
      ".p2align 5\n1:\n\t" \
      item \
      "add %[item_bytes], %[items]\n\t" \
      "add %[code_bytes], %[codes]\n\t" \
      "add %[scale_bytes], %[scales]\n\t" \
      "add $64, %[starts]\n\t" \
      "add $64, %[sums]\n\t" \
      "dec %%rax\n\t" \
      "jnz 1b\n2:\n\t" \
      "mov %[to], %%rax\n\t" \
      "cmpq $0, %[adds]\n\t" \
      "jz 4f\n3:\n\t" \
      "sub %[level_bytes], %%rax\n\t" \
      tokens(KVANT_STRIP_ADD) \
      "decq %[adds]\n\t" \
      "jnz 3b\n4:\n\t" \
      tokens(KVANT_STRIP_STORE) \
      : [items] "+r"(items), [codes] "+r"(at.codes), [scales] "+r"(at.scales), \
        [starts] "+r"(at.starts), [sums] "+r"(at.sums), [adds] "+m"(adds) \
      : [count] "m"(count), [records] "m"(records), [from] "m"(from), [to] "m"(to), \
        [origin] "m"(kDotOrigin), \
        [item_bytes] "i"(64 * Traits::kItem), [code_bytes] "i"(16 * Traits::kScaleValues), \
        [scale_bytes] "i"(2 * Traits::kScaleValues), \
        [level_bytes] "i"(64 * kTrackSums) \
      : "memory", "cc", "rax", "r8", "r9", "r10", "r11", "r12", "r13", \
        "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", \
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", \
        "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", \
        "zmm31")

// Of each format one item: the starts, the products, the ends.
#define KVANT_STRIP_ITEM(n, lines, ends) \
  KVANT_MULTIPLY_TRACK(KVANT_STRIP_TOKENS_##n, \
                      KVANT_STRIP_TOKENS_##n(KVANT_STRIP_START) \
                      KVANT_STRIP_LINES_##lines(KVANT_STRIP_LINE_##n) ends)
#define KVANT_STRIP_SCALED(n, at) \
  KVANT_STRIP_SCALES(at) KVANT_STRIP_TOKENS_##n(KVANT_STRIP_SCALE)
#define KVANT_STRIP_SHIFTED(n, at, offsets_at) \
  KVANT_STRIP_OFFSETS(offsets_at) KVANT_STRIP_SCALED(n, at) \
  KVANT_STRIP_TOKENS_##n(KVANT_STRIP_OFFSET)
#define KVANT_STRIP_OF_TOKENS(n) \
  if constexpr (Traits::kScaleValues == 32 && !Traits::kHasOffsets) { \
    KVANT_STRIP_ITEM(n, 8, KVANT_STRIP_SCALED(n, 16)); \
  } else if constexpr (Traits::kScaleValues == 32) { \
    KVANT_STRIP_ITEM(n, 8, KVANT_STRIP_SHIFTED(n, 16, 18)); \
  } else if constexpr (!Traits::kHasOffsets) { \
    KVANT_STRIP_ITEM(n, 4, KVANT_STRIP_SCALED(n, 8)); \
  } else { \
    KVANT_STRIP_ITEM(n, 4, KVANT_STRIP_SHIFTED(n, 8, 10)); \
  }

// Where the sums of a track come from, null: zeros, and where they go, after `adds` times those
// kTrackSums vectors before have been added to them and taken their place.
struct TrackSums {
  const __m512* from;
  __m512* to;
  int64_t adds;
};

// The sums of a track += `count` of its items times the tokens of a tile, whose activations are
// `at` in their records.
template <class Traits, int kTokens>
[[gnu::always_inline]] inline void MultiplyTrack(const __m512* items, int64_t count,
                                                 const TileTokens& tokens, PanelActivations at,
                                                 const TrackSums& sums) {
  const std::byte* const* records = tokens.records;
  const __m512* from = sums.from;
  __m512* to = sums.to;
  int64_t adds = sums.adds;
  // The numbers of lines and the places of scales in KVANT_STRIP_OF_TOKENS.
  static_assert(kPanelTokens == 6 && kPanelVectors == 2);
  static_assert(Traits::kCodes == (Traits::kScaleValues == 32 ? 16 : 8));
  if constexpr (kTokens == 4) {
    KVANT_STRIP_OF_TOKENS(4)
  } else if constexpr (kTokens == 5) {
    KVANT_STRIP_OF_TOKENS(5)
  } else {
    static_assert(kTokens == 6);
    KVANT_STRIP_OF_TOKENS(6)
  }
}
// clang-format on

// What is asked for while a strip is multiplied: the bytes that the next is made of, some for each
// track of each tile.
class NextStrip {
 public:
  NextStrip() = default;
  NextStrip(RowBlocks rows, int64_t height, int64_t bytes, int64_t parts)
      : rows_(rows), bytes_(bytes), height_(height), parts_(parts) {}

  // Inline, since GCC drops calls of functions that do no more.
  [[gnu::always_inline]] void PrefetchPart() {
    const int64_t end = height_ * ++part_ / parts_;
    for (; row_ < end; ++row_) PrefetchBlock<PrefetchTo::kSecondLevel>(rows_[row_], bytes_);
  }

 private:
  RowBlocks rows_ = {};
  int64_t bytes_ = 0;
  int64_t height_ = 0;
  int64_t parts_ = 1;
  int64_t part_ = 0;
  int64_t row_ = 0;
};

// A strip of `cols` columns, and whether they are a row's first and its last.
struct StripView {
  const __m512* items;
  int64_t cols;
  bool first, last;
};

// Sums of a tile, kTrackSums vectors each of [tokens][kPanelVectors]. Of the last strip `stack[0]`
// becomes those of all tracks; above it there are at most as many that wait for others as a track's
// number has bits.
struct TileSums {
  __m512* tracks;  // [16]
  __m512* stack;   // [kSumsInStack]
};
constexpr int64_t kSumsInStack = 5;

// sums += a strip times the tokens of a tile. The tracks come in the order of lanes 0, 8, 4, 12, 2
// ..., so that of two sums that are added one comes right after the other.
template <class Traits, int kTokens>
[[gnu::noinline]] void MultiplyStrip(const StripView& strip, const TileTokens& tokens,
                                     const PanelActivations& at, NextStrip& next,
                                     const TileSums& sums) {
  const int64_t items = strip.cols / Traits::kScaleValues;
  __m512* stack = sums.stack;
  for (unsigned i = 0; i < 16; ++i) {
    next.PrefetchPart();
    const int64_t track = Traits::kTracks[i];
    const int64_t pair = track * Traits::kScaleValues / 32;
    __m512* own = sums.tracks + track * kTrackSums;
    const int adds = std::countr_one(i);
    MultiplyTrack<Traits, kTokens>(
        strip.items + track * Traits::kTrack, std::max<int64_t>(items - track + 15, 0) / 16, tokens,
        {at.codes + track * Traits::kScaleValues, at.scales + 4 * pair, at.starts + 4 * track,
         at.sums + 4 * track, 0},
        {strip.first ? nullptr : own, strip.last ? stack : own, strip.last ? adds : 0});
    stack += (1 - adds) * kTrackSums;
  }
}

// What the loops below must know of a format's strips.
struct StripFormat {
  using Multiply = void (*)(const StripView& strip, const TileTokens& tokens,
                            const PanelActivations& at, NextStrip& next, const TileSums& sums);

  RowReader reader;
  // 16 rows of a block of 256 columns, which may be put in another order there, to vector `v` of
  // block `block` of a strip.
  void (*pack)(WeightBlock* rows, __m512* strip, int64_t block, int64_t v);
  // The same from the rows' bytes, of blocks that rows have whole. May be null.
  void (*pack_rows)(RowBlocks rows, __m512* strip, int64_t block, int64_t v);
  Multiply multiply[kStripTokensMax - kStripTokensMin + 1];  // by tokens of a tile
  int scale_values;

  template <class Unpacker>
  static StripFormat Of(const MatMulTask& task) {
    using Codes = typename Unpacker::Codes;
    using Traits = StripTraitsOf<Unpacker>;
    StripFormat format = {
        {UnpackBlocks<Unpacker>, BlockBytes<Unpacker>(*task.format), task.format, task.cols},
        Pack<Traits, Codes>,
        nullptr,
        {MultiplyStrip<Traits, 4>, MultiplyStrip<Traits, 5>, MultiplyStrip<Traits, 6>},
        Traits::kScaleValues};
    if constexpr (requires { typename Unpacker::Rows; }) {
      format.pack_rows = PackRows<Traits, typename Unpacker::Rows>;
    }
    return format;
  }

 private:
  template <class Traits, class Codes>
  static void Pack(WeightBlock* rows, __m512* strip, int64_t block, int64_t v) {
    PackLanes<Codes>(rows, StripLines<Traits, Codes>(strip, block, v));
  }
  template <class Traits, class Rows>
  static void PackRows(RowBlocks rows, __m512* strip, int64_t block, int64_t v) {
    Rows::PackTo(rows, StripLines<Traits, typename Rows::Codes>(strip, block, v));
  }
};

// The parts of a thread's scratch memory.
struct StripScratch {
  static constexpr int64_t kTiles = (kManyTokens - 1 + kStripTokensMax - 1) / kStripTokensMax;

  __m512* strip;  // [kStripVectors]
  __m512* stack;  // as in TileSums, of one tile after the other
  __m512* sums;   // [kTiles][16][kTrackSums], where rows have several strips

  explicit StripScratch(std::byte* bytes)
      : strip(reinterpret_cast<__m512*>(bytes)),
        stack(strip + kStripVectors),
        sums(stack + kSumsInStack * kTrackSums) {}

  static constexpr size_t Bytes() {
    return (kStripVectors + (kSumsInStack + kTiles * 16) * kTrackSums) * sizeof(__m512);
  }
};

// Some rows, at most 32, and columns of them, at most kStripColumns.
struct StripPlace {
  int64_t row, rows;
  int64_t col, cols;
};

// 16 rows from row `first` of a place on, some of which may be missing, to vector `v` of a strip.
inline void PackStrip(const MatMulTask& task, const StripFormat& format, const StripPlace& place,
                      int64_t v, __m512* strip) {
  const int64_t first = v * kPanelLanes;
  const auto row = [&](int64_t r) {
    return task.weights + (place.row + std::min(first + r, place.rows - 1)) * task.row_bytes;
  };
  const int64_t begin = place.col / kBlock;
  const int64_t bytes = format.reader.block_bytes;
  int64_t block = 0;
  if (format.pack_rows != nullptr && first + kPanelLanes <= place.rows) {
    for (; block < place.cols / kBlock; ++block) {
      const std::byte* blocks = row(0) + (begin + block) * bytes;
      // Also where the bytes lie in the second level: small pages are translated ahead.
      for (int64_t r = 0; r < kPanelLanes; ++r) {
        PrefetchBlock<PrefetchTo::kFirstLevel>(blocks + r * task.row_bytes + bytes, bytes);
      }
      format.pack_rows({blocks, task.row_bytes}, strip, block, v);
    }
  }
  for (; block < BlockCount(place.cols); ++block) {
    WeightBlock rows[kPanelLanes];
    for (int64_t r = 0; r < kPanelLanes; ++r) {
      format.reader.Read(row(r), begin + block, begin + block + 1, Ahead(), rows + r);
    }
    format.pack(rows, strip, block, v);
  }
}

// The bytes of the place that comes after this one.
inline NextStrip NextAfter(const MatMulTask& task, const StripFormat& format,
                           const StripPlace& place, int64_t parts) {
  int64_t row = place.row;
  int64_t col = place.col + kStripColumns;
  if (col >= task.cols) {
    row += kPanelHeight;
    col = 0;
  }
  const int64_t height = std::min(kPanelHeight, task.row_end - row);
  if (height <= 0) return {};
  const int64_t bytes = format.reader.block_bytes;
  const std::byte* first = task.weights + row * task.row_bytes + col / kBlock * bytes;
  const int64_t blocks = BlockCount(std::min(kStripColumns, task.cols - col));
  return {{first, task.row_bytes}, height, blocks * bytes, parts};
}

// The products of the rows at a place, whose last columns have been multiplied, with one tile.
inline void PutProducts(const MatMulTask& task, const StripPlace& place, int64_t token,
                        int64_t tokens, const __m512* products) {
  for (int64_t t = 0; t < tokens; ++t, products += kPanelVectors) {
    float* out = task.out + (token + t) * task.out_stride + place.row;
    for (int64_t v = 0; v < kPanelVectors; ++v) {
      StoreLanes(products[v], place.rows - v * kPanelLanes, task.store, out + v * kPanelLanes);
    }
  }
}

[[gnu::noinline]] inline void RunStrips(const MatMulTask& task, const StripFormat& format) {
  if (task.arranged != nullptr) *task.arranged = {};
  const StripScratch scratch(task.scratch.data());
  const PanelActivations activations = PanelActivations::Of(task, 32 / format.scale_values);
  const int64_t tiles = (task.tokens + kStripTokensMax - 1) / kStripTokensMax;
  const auto run = [&](const StripPlace& place) {
    for (int64_t v = 0; v * kPanelLanes < place.rows; ++v) {
      PackStrip(task, format, place, v, scratch.strip);
    }
    NextStrip next = NextAfter(task, format, place, 16 * tiles);
    const PanelActivations at = activations.From(place.col / 32, 32 / format.scale_values);
    const StripView strip = {scratch.strip, place.cols, place.col == 0,
                             place.col + place.cols == task.cols};
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles differ by one token at most. A tile of three is multiplied as four.
      const int64_t token = tile * task.tokens / tiles;
      const int64_t count = (tile + 1) * task.tokens / tiles - token;
      const TileSums sums = {scratch.sums + tile * 16 * kTrackSums, scratch.stack};
      const int64_t kernel = std::max<int64_t>(count - kStripTokensMin, 0);
      format.multiply[kernel](strip, TileTokens(task, token), at, next, sums);
      if (strip.last) PutProducts(task, place, token, count, sums.stack);
    }
  };
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelHeight) {
    for (int64_t col = 0; col < task.cols; col += kStripColumns) {
      run({row, std::min(kPanelHeight, task.row_end - row), col,
           std::min(kStripColumns, task.cols - col)});
    }
  }
}

// From so many tokens on strips take less time than blocks; formats that are packed from the rows'
// bytes say it.
template <class Unpacker>
constexpr int64_t StripTokens() {
  if constexpr (requires { typename Unpacker::Rows; }) return Unpacker::Rows::kStripTokens;
  return 28;
}

// All numbers of tokens.
template <class Unpacker, Streams kStreamed = Streams::kEveryCount>
void RunWithStrips(const MatMulTask& task) {
  if (task.count == TokenCount::kFew && task.tokens >= StripTokens<Unpacker>() &&
      task.tokens < kManyTokens) {
    return RunStrips(task, StripFormat::Of<Unpacker>(task));
  }
  RunQuantized<Unpacker, kStreamed>(task);
}

inline size_t ScratchBytesWithStrips(int64_t cols) {
  return std::max(QuantizedScratchBytes(cols), StripScratch::Bytes());
}
