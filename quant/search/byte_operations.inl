// Operations on vectors of bytes and of words of 16 bits that some instruction sets have an
// instruction for and compilers do not find: here in plain loops and choices. Included inside a
// namespace, before quant/search/cube_search.inl.

// Within every 16 bytes: table[index[lane]], index < 16.
template <class Bytes>
Bytes LookUpBytes(Bytes table, Bytes index) {
  Bytes found;
  for (size_t lane = 0; lane < sizeof(Bytes); ++lane) {
    found[lane] = table[lane / 16 * 16 + index[lane]];
  }
  return found;
}
// Sixteen bytes once more for every 16 bytes.
template <class Bytes, class Sixteen>
Bytes RepeatSixteen(Sixteen v) {
  Bytes repeated;
  for (size_t lane = 0; lane < sizeof(Bytes); ++lane) repeated[lane] = v[lane % 16];
  return repeated;
}
// Sums, 255 where they are greater.
template <class Bytes>
Bytes AddCapped(Bytes a, Bytes b) {
  const Bytes sum = a + b;
  return sum < a ? ~Bytes{} : sum;
}
// The least of eight numbers of 16 bits.
template <class Words>
uint16_t LeastWord(Words v) {
  uint16_t least = v[0];
  for (int lane = 1; lane < 8; ++lane) least = v[lane] < least ? v[lane] : least;
  return least;
}
