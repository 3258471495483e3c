// Where the values of a lane lie in a plane of bits (BitPlane of quant/block.h), for
// LaneOrder::kGroups of int8_blocks.inl. Included inside the target region of matmul.cpp, after
// unpack_pieces.inl.

// The value that begins lane `lane` of vector s: its lanes hold four values of group 4v + q each.
constexpr int FirstValue(int lane, int s) { return 16 * (4 * (lane % 4) + lane / 4) + 4 * s; }

// Vector s of a lane takes the 32-bit piece first[s][lane] of the plane; the fields of its four
// values begin at bit shift[lane] + kBit of each byte, where rotations count.
template <int kWidth, int kRun, int kBit>
struct PieceOrder {
  static_assert(kRun % 16 == 0);
  using Plane = quant::BitPlane<kWidth, kRun>;
  alignas(64) uint32_t first[4][16] = {};
  alignas(64) uint32_t shift[16] = {};
  constexpr PieceOrder() {
    for (int lane = 0; lane < 16; ++lane) {
      for (int s = 0; s < 4; ++s) first[s][lane] = Plane::Byte(FirstValue(lane, s)) / 4;
      shift[lane] = static_cast<uint32_t>(Plane::Shift(FirstValue(lane, 0)) - kBit) % 32;
    }
  }
};
template <int kWidth, int kRun, int kBit>
constexpr PieceOrder<kWidth, kRun, kBit> kPieceOrder;
