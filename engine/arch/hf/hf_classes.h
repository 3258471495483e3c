// The names of Hugging Face's model classes: those that can be converted, and what is known of
// others.
//
// Thread-safety: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kvant::arch {

struct HfClassName {
  std::string_view name;
  std::string_view arch;  // general.architecture of the file that it becomes
};

// The classes of all families, by name.
std::vector<HfClassName> KnownHfClasses();

// Says why a class that is none of them cannot be converted, as the end of a message: "it is an
// encoder as BERT, which gives embeddings or labels of texts". "" where nothing is known of it.
std::string WhyHfClassIsUnknown(std::string_view name);

}  // namespace kvant::arch
