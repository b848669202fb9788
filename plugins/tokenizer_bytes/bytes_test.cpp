#include "bytes.h"

#include <gtest/gtest.h>

namespace {

const kb_tokenizer& table() { return *static_cast<const kb_tokenizer*>(Bytes::service()); }

template <class T>
kb_sink into(std::vector<T>& out) {
  return {&out, [](void* c, const void* d, uint64_t n) {
            auto& v = *static_cast<std::vector<T>*>(c);
            const T* p = static_cast<const T*>(d);
            v.insert(v.end(), p, p + n / sizeof(T));
            return 0;
          }};
}

TEST(Bytes, EveryByteComesBack) {
  const Bytes t;
  std::string all;
  for (int i = 0; i < 256; ++i) all += char(i);
  std::vector<int32_t> ids;
  std::vector<char> back;
  kb_error e{};
  ASSERT_EQ(table().encode(&t, all.data(), all.size(), into(ids), &e), KB_OK) << e.message;
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[size_t(i)], i);
  ASSERT_EQ(table().decode(&t, ids.data(), ids.size(), into(back), &e), KB_OK) << e.message;
  EXPECT_EQ(std::string(back.begin(), back.end()), all);
}
TEST(Bytes, EmptyTextIsNoTokens) {
  EXPECT_TRUE(Bytes().encode("").empty());
  EXPECT_EQ(Bytes().decode(nullptr, 0), "");
}
TEST(Bytes, SpecialsHaveIdsAndNoText) {
  const Bytes t;
  EXPECT_EQ(table().vocab(&t), 258);
  EXPECT_EQ(table().special(&t, "bos"), 256);
  EXPECT_EQ(table().special(&t, "eos"), 257);
  EXPECT_EQ(table().special(&t, "pad"), -1);
  const std::vector<int32_t> ids{256, 'h', 'i', 257};
  EXPECT_EQ(t.decode(ids.data(), ids.size()), "hi");
}
TEST(Bytes, AnIdOutsideTheVocabularyIsAnError) {
  const Bytes t;
  for (const int32_t id : {-1, 258}) {
    std::vector<char> out;
    kb_error e{};
    EXPECT_EQ(table().decode(&t, &id, 1, into(out), &e), KB_INVALID);
    EXPECT_NE(std::string(e.message).find("must be in [0, 258) but id 0 of 1 is"), std::string::npos) << e.message;
  }
}
TEST(Bytes, ARefusedOutputIsAnError) {
  const Bytes t;
  kb_error e{};
  const kb_sink no{nullptr, [](void*, const void*, uint64_t) { return 1; }};
  EXPECT_EQ(table().encode(&t, "x", 1, no, &e), KB_INVALID);
}

}  // namespace
