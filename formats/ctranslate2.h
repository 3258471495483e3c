// model.bin of a CTranslate2 folder: bounds-checked, zero-copy reading.
//
// Layout, little-endian and without padding: {version u32, spec, revision u32, count u32,
// variables, count u32, aliases}. A text is {bytes u16, characters, 0}. A variable is {name,
// dimensions u8, a size u32 each, type u8, bytes u32, values}; before version 4 the bytes of a
// value u8 and the number of values u32 stand for type and bytes. An alias is {name, name of a
// variable}; before version 3 there are none. Source of the layout: CTranslate2,
// specs/model_spec.py and src/models/model.cc.
//
// Errors (kCorrupt, kNotSupported, kIo) name the file and the variable, what was expected and what
// was found. Thread-safety: const after Open; may be shared freely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/name_index.h"
#include "formats/safetensors.h"

namespace kvant::formats {

// The name of the file in its folder.
inline constexpr std::string_view kCTranslate2File = "model.bin";

class CTranslate2Model {
 public:
  static Result<CTranslate2Model> Open(const std::string& path,
                                       FileAccess access = FileAccess::kMap);

  // A file in memory; `name` is used in messages. The bytes must outlive the object.
  static Result<CTranslate2Model> Parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const std::string& spec() const { return spec_; }  // "TransformerSpec"
  uint32_t version() const { return version_; }
  uint32_t revision() const { return revision_; }  // of the spec

  // The variables in the order of the file, with unique names. Types are F32, F16, BF16, I8, I16
  // and I32; a shape without dimensions is a scalar.
  std::span<const SafetensorsTensor> variables() const { return variables_; }

  // A variable under its name or an alias, or null.
  const SafetensorsTensor* Find(std::string_view name) const;

  // A scalar as a number; nothing where there is no such variable. kCorrupt for a variable of
  // several values, and for one that is no finite number.
  Result<std::optional<double>> Number(std::string_view name) const;

  // The characters of a variable, as files before version 6 have settings that are texts.
  Result<std::optional<std::string>> Text(std::string_view name) const;

 private:
  friend class CTranslate2Parser;
  struct Alias {
    std::string name;
    size_t variable;
  };

  MappedFile mapping_;
  std::string path_;
  std::string spec_;
  uint32_t version_ = 0;
  uint32_t revision_ = 0;
  std::vector<SafetensorsTensor> variables_;
  std::vector<Alias> aliases_;
  NameIndex variable_index_;
  NameIndex alias_index_;
};

}  // namespace kvant::formats
