// Names and numbers of the types of keys and values.
#include "kvant/kv_type.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "cpu/kv_format_list.h"

namespace kvant {
namespace {

TEST(KvTypeNames, AreReadAndNoTwoAreAlike) {
  std::set<std::string_view> names;
  for (const KvType type : AllKvTypes()) {
    const cpu::KvTraits& traits = cpu::KvTraitsOf(type);
    EXPECT_EQ(traits.type, type);
    EXPECT_EQ(KvTypeName(type), traits.name);
    EXPECT_TRUE(names.insert(traits.name).second) << traits.name;
    EXPECT_EQ(ParseKvType(traits.name).value(), type);
    if (traits.other_name.empty()) continue;
    EXPECT_TRUE(names.insert(traits.other_name).second) << traits.other_name;
    EXPECT_EQ(ParseKvType(traits.other_name).value(), type);
  }
  EXPECT_EQ(ParseKvType("").error().message,
            "KV cache type: expected " + KvTypeNames() + ", found \"\"");
}

TEST(KvTypeNames, NumbersInFilesAndInterfacesStay) {
  EXPECT_EQ(static_cast<int>(ParseKvType("f32").value()), 0);
  EXPECT_EQ(static_cast<int>(ParseKvType("f16").value()), 1);
  EXPECT_EQ(static_cast<int>(ParseKvType("q8").value()), 2);
}

}  // namespace
}  // namespace kvant
