// The tile instructions that the kernels of this folder use. In assembler, because the intrinsics
// take the number of a tile as text. A test has a model of them in plain loops.
//
// Included inside the namespaces of matmul.cpp, attention.cpp and peaks.cpp.

// The operand of LDTILECFG: the shape of each of eight tiles, in bytes of a row and in rows
// (Intel's Software Developer's Manual, volume 1, section 18.2).
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

struct Tiles {
  static void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  static void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  // Rows of the tile lie `stride` bytes apart.
  template <int kTile>
  static void Load(const void* source, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(source), "r"(stride), "i"(kTile)
                 : "memory");
  }
  // Loads a tile that the first-level cache need not keep; rows lie `stride` bytes apart.
  template <int kTile>
  static void LoadPastCache(const void* source, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(source), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void Store(void* target, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(target), "r"(stride), "i"(kTile)
                 : "memory");
  }

  // Lane n of row m of kSums += the products of the bfloat16 numbers of row m of kLeft with those
  // of all lanes n of kRight: number 2k + i with number i of row k. Denormal numbers count as
  // zeros.
  template <int kSums, int kLeft, int kRight>
  static void MultiplyBf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }

  // Adds products of bytes to int32 sums as MultiplyBf16 does for bfloat16, four bytes a lane:
  // signed by signed, or unsigned (kLeft) by signed (kRight).
  template <int kSums, int kLeft, int kRight>
  static void MultiplySigned() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }
  template <int kSums, int kLeft, int kRight>
  static void MultiplyUnsigned() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kLeft), "i"(kRight));
  }
};
