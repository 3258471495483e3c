// Encoders that fit kLanes blocks side by side, for the formats whose header has a kShape and a
// Pack: the search of quant/search/scale_search.inl in the vectors of the including instruction
// set.
//
// Included inside an instruction set's namespace and target region, after the two files of quant/.

// Blocks of the last batch that do not exist repeat the last one, and are not stored.
template <class Format>
void EncodeRows(const EncodeTask& task) {
  using Fit = decltype(quant::FitBlock(task.values, task.importance, Format::kShape));
  using Block = typename Format::Block;
  const int64_t count = task.rows * task.cols / Format::kBlockValues;
  for (int64_t first = 0; first < count; first += kLanes) {
    const float* values[kLanes];
    const float* importance[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const int64_t begin = std::min(first + lane, count - 1) * Format::kBlockValues;
      values[lane] = task.values + begin;
      importance[lane] = task.importance == nullptr ? nullptr : task.importance + begin % task.cols;
    }
    Fit fits[kLanes];
    FitBlocks(values, task.importance == nullptr ? nullptr : importance, Format::kShape, fits);
    for (int64_t lane = 0; lane < std::min<int64_t>(kLanes, count - first); ++lane) {
      Block block{};
      Format::Pack(fits[lane], block);
      std::memcpy(task.blocks + (first + lane) * static_cast<int64_t>(sizeof(Block)), &block,
                  sizeof(Block));
    }
  }
}
