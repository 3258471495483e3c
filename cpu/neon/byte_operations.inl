// The operations of quant/search/byte_operations.inl in NEON, for vectors of 16 bytes. Included
// inside the folder's namespace and target region.

template <class Bytes>
Bytes LookUpBytes(Bytes table, Bytes index) {
  return reinterpret_cast<Bytes>(
      vqtbl1q_u8(reinterpret_cast<uint8x16_t>(table), reinterpret_cast<uint8x16_t>(index)));
}
template <class Bytes, class Sixteen>
Bytes RepeatSixteen(Sixteen v) {
  return v;
}
template <class Bytes>
Bytes AddCapped(Bytes a, Bytes b) {
  return reinterpret_cast<Bytes>(
      vqaddq_u8(reinterpret_cast<uint8x16_t>(a), reinterpret_cast<uint8x16_t>(b)));
}
template <class Words>
uint16_t LeastWord(Words v) {
  return vminvq_u16(reinterpret_cast<uint16x8_t>(v));
}
