// The fields of a session file by name, read as engine/kv/session_file.h describes the format and
// without its code: tests and the fuzz target change a field and seal all sections again, as
// somebody would who wants his file to be believed.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <xxhash.h>

namespace kvant::test {

class SessionFields {
 public:
  // `source_groups` has a bit for each group that holds sources, which the file does not say, and
  // `row_dim` is the length of a row in a row block.
  SessionFields(std::string bytes, int64_t vocab, uint64_t source_groups = 0, uint64_t row_dim = 0)
      : bytes_(std::move(bytes)), vocab_(vocab), source_groups_(source_groups), row_dim_(row_dim) {
    Walk();
  }

  bool Has(const std::string& name) const { return places_.contains(name); }
  // The value of a field. T is the type that the field has in the file.
  template <class T>
  T Get(const std::string& name) const {
    T value{};
    std::memcpy(&value, bytes_.data() + places_.at(name), sizeof value);
    return value;
  }
  template <class T>
  void Set(const std::string& name, T value) {
    std::memcpy(bytes_.data() + places_.at(name), &value, sizeof value);
  }

  // Computes the hash of every section again, as far as the file can be read.
  void Seal() { Walk(); }

  const std::string& bytes() const { return bytes_; }

 private:
  struct Group {
    int32_t kv_heads, k_dim, v_dim, k_type, v_type, rotate_keys, rotate_values, layers;
  };

  // False at the end of the file, and from then on.
  bool Skip(uint64_t size) {
    if (at_ > bytes_.size() || size > bytes_.size() - at_) at_ = bytes_.size() + 1;
    if (at_ <= bytes_.size()) at_ += size;
    return at_ <= bytes_.size();
  }
  template <class T>
  T Number(const std::string& name) {
    T value{};
    const size_t place = at_;
    if (!Skip(sizeof value)) return value;
    std::memcpy(&value, bytes_.data() + place, sizeof value);
    places_[name] = place;
    return value;
  }
  bool End() {
    const size_t place = at_;
    if (!Skip(sizeof(uint64_t))) return false;
    const uint64_t hash = XXH64(bytes_.data() + section_, place - section_, 0);
    std::memcpy(bytes_.data() + place, &hash, sizeof hash);
    section_ = at_;
    return true;
  }

  void Walk() {
    places_.clear();
    at_ = section_ = 0;
    if (!Skip(8)) return;
    version_ = Number<uint32_t>("version");
    std::vector<Group> groups(Number<uint32_t>("groups") % 64);
    Number<uint64_t>("fingerprint");
    for (size_t g = 0; g < groups.size(); ++g) {
      const std::string name = "group " + std::to_string(g);
      Number<int64_t>(name + " window");
      const size_t place = at_;
      if (!Skip(sizeof(Group))) return;
      std::memcpy(&groups[g], bytes_.data() + place, sizeof(Group));
      if (groups[g].layers < 0 || !Skip(4 * static_cast<uint64_t>(groups[g].layers))) return;
    }
    const auto sequences = Number<uint32_t>("sequences");
    const uint32_t sources = has_sources() ? Number<uint32_t>("sources") : 0;
    const uint8_t rows = has_sources() ? Number<uint8_t>("source rows") : uint8_t{0};
    const uint32_t row_blocks = version_ == 3 ? Number<uint32_t>("row blocks") : 0;
    if (!End()) return;
    std::vector<int64_t> positions;
    for (uint32_t s = 0; s < sources; ++s) {
      if (!Source("source " + std::to_string(s), &positions)) return;
    }
    for (uint32_t b = 0; b < row_blocks; ++b) {
      const auto count =
          static_cast<uint64_t>(Number<int64_t>("row block " + std::to_string(b) + " rows"));
      if (count > bytes_.size() || !Skip(4 * row_dim_ * count) || !End()) return;
    }
    for (uint32_t s = 0; s < sequences; ++s) {
      if (!Sequence("sequence " + std::to_string(s), groups.size())) return;
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      if (OfSources(g)) continue;
      const std::string name = "group " + std::to_string(g);
      const auto blocks = Number<uint32_t>(name + " blocks");
      if (!End()) return;
      for (uint32_t b = 0; b < blocks; ++b) {
        if (!Block(name + " block " + std::to_string(b), groups[g])) return;
      }
    }
    for (size_t s = 0; s < positions.size() && rows == 1; ++s) {
      for (size_t g = 0; g < groups.size(); ++g) {
        for (int64_t at = 0; at < positions[s] && OfSources(g); at += 32) {
          const std::string name = "source " + std::to_string(s) + " group " + std::to_string(g);
          if (!Block(name + " block " + std::to_string(at / 32), groups[g])) return;
        }
      }
    }
  }

  bool has_sources() const { return version_ == 2 || (version_ == 3 && source_groups_ != 0); }
  bool OfSources(size_t group) const { return (source_groups_ >> group & 1) != 0; }

  // The hash of the input is made right, too.
  bool Source(const std::string& name, std::vector<int64_t>* positions) {
    Number<uint8_t>(name + " kind");
    positions->push_back(Number<int64_t>(name + " positions"));
    const auto size = Number<uint64_t>(name + " size");
    const size_t input = at_;
    places_[name + " input"] = at_;
    if (size > bytes_.size() || !Skip(size)) return false;
    const size_t place = at_;
    if (!Skip(sizeof(uint64_t))) return false;
    const uint64_t hash = XXH64(bytes_.data() + input, size, 0);
    std::memcpy(bytes_.data() + place, &hash, sizeof hash);
    return End();
  }

  bool Sequence(const std::string& name, size_t groups) {
    const auto length = static_cast<uint64_t>(Number<int64_t>(name + " length"));
    const auto flags = Number<uint8_t>(name + " flags");
    if (has_sources()) Number<uint32_t>(name + " source");
    const auto ranges = Number<uint32_t>(name + " pruned ranges");
    for (uint32_t r = 0; r < ranges; ++r) {
      Number<int64_t>(name + " range " + std::to_string(r) + " begin");
      Number<int64_t>(name + " range " + std::to_string(r) + " end");
      if (at_ > bytes_.size()) return false;
    }
    places_[name + " tokens"] = at_;
    if (length > bytes_.size() || !Skip(4 * length)) return false;
    if ((flags & 1) != 0 && !Skip(4 * static_cast<uint64_t>(vocab_))) return false;
    for (size_t g = 0; g < groups; ++g) {
      if (OfSources(g)) continue;
      const std::string table = name + " group " + std::to_string(g);
      Number<int64_t>(table + " first position");
      const auto entries = Number<uint32_t>(table + " entries");
      for (uint32_t e = 0; e < entries; ++e) {
        const std::string entry = table + " entry " + std::to_string(e);
        Number<int64_t>(entry + " number");
        Number<uint32_t>(entry + " index");
        if (at_ > bytes_.size()) return false;
      }
    }
    return End();
  }

  bool Block(const std::string& name, const Group& group) {
    const auto rows = Number<uint32_t>(name + " rows");
    if (group.kv_heads < 0 || group.kv_heads > 64 || group.layers > 64) return false;
    for (int32_t lane = 0; lane < group.layers * group.kv_heads && rows > 0; ++lane) {
      const std::string at = name + " lane " + std::to_string(lane);
      if (!Side(at + " keys", rows, group.k_type, group.k_dim)) return false;
      if (!Side(at + " values", rows, group.v_type, group.v_dim)) return false;
    }
    return End();
  }
  // Types: 0 f32, 1 f16, 2 int8 with scales.
  bool Side(const std::string& name, uint64_t rows, int32_t type, int32_t dim) {
    if (dim < 0) return false;
    places_[name] = at_;
    const uint64_t bytes = type == 0 ? 4 : type == 1 ? 2 : 1;
    if (!Skip(rows * bytes * static_cast<uint64_t>(dim))) return false;
    places_[name + " scales"] = at_;
    return type != 2 || Skip(4 * rows);
  }

  std::string bytes_;
  int64_t vocab_;
  uint64_t source_groups_;
  uint64_t row_dim_;
  uint32_t version_ = 0;
  std::map<std::string, size_t> places_;
  size_t at_ = 0;
  size_t section_ = 0;
};

}  // namespace kvant::test
