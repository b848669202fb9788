#include "jsonl.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace {

struct File {
  std::string path = (std::filesystem::temp_directory_path() / kb::text("kitbash-jsonl-", getpid(), ".jsonl")).string();
  explicit File(const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  ~File() { std::filesystem::remove(path); }
};
Jsonl source(const std::string& path, const char* key = "text") {
  Jsonl t;
  t.path = kb::Path(path.c_str());
  t.key = key;
  return t;
}
std::vector<std::string> all(const Jsonl& t) {
  const auto r = t.open("train");
  std::vector<std::string> texts(size_t(r->count()));
  for (size_t i = 0; i < texts.size(); ++i)
    r->sample(0, int64_t(i), kb::Sample{{&texts[i], [](void* s, const char* b, uint64_t n, double) {
                                           static_cast<std::string*>(s)->append(b, n);
                                           return 0;
                                         }}});
  return texts;
}
std::string error(const std::string& text) {
  const File f(text);
  try {
    source(f.path).open("train");
  } catch (const kb::Error& e) {
    const std::string s = e.what();
    return s.rfind(f.path, 0) == 0 ? s.substr(f.path.size()) : s;
  }
  return "";
}
using Texts = std::vector<std::string>;

TEST(Jsonl, TakesTheKeyOfEveryLine) {
  const File f(
      "{\"id\": [1, {\"text\": \"no\"}, -2.5e3, null], \"text\": \"a\"}\r\n\n{ \"text\" : \"\" , \"x\": {} "
      "}\n{\"text\":\"c\"}");
  EXPECT_EQ(all(source(f.path)), (Texts{"a", "", "c"}));
}
TEST(Jsonl, AnotherKey) {
  const File f("{\"text\": 1, \"body\": \"b\"}\n");
  EXPECT_EQ(all(source(f.path, "body")), (Texts{"b"}));
}
TEST(Jsonl, EveryEscapeIsRead) {
  const File f(R"({"text": "\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00\u0000"})");
  std::string want = "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
  want += '\0';
  EXPECT_EQ(all(source(f.path)), (Texts{want}));
}
TEST(Jsonl, BytesThatAreNoUtf8AreKept) {
  const File f("{\"text\": \"a\xff\x80z\"}");
  EXPECT_EQ(all(source(f.path)), (Texts{"a\xff\x80z"}));
}
TEST(Jsonl, ABadLineIsNamedByNumberAndColumn) {
  const std::string good = "{\"text\": \"a\"}\n\n";
  EXPECT_EQ(error(good + "[1]"), ":3: column 1: a JSON object must begin with '{' but got '['");
  EXPECT_EQ(error(good + "{\"text\": 3}"), ":3: column 10: 'text' must be a string but got '3'");
  EXPECT_EQ(error(good + "{\"txt\": \"a\"}"),
            ":3: column 13: the object must have the key 'text' but got the end of the line");
  EXPECT_EQ(error(good + "{\"text\": \"a\"} x"), ":3: column 15: nothing must follow the object but got 'x'");
  for (const char* bad :
       {"{", "{\"text\"", "{\"text\":", "{\"text\": \"a", "{\"text\": \"a\"", "{\"text\": \"a\",}",
        "{\"text\": \"\\x\"}", "{\"text\": \"\\u12g4\"}", "{\"text\": \"\\ud800\"}", "{\"text\": \"\\udc00\"}",
        "{\"text\": \"\\ud800\\u0041\"}", "{\"text\": \"a\tb\"}", "{\"n\": 01, \"text\": \"a\"}",
        "{\"n\": 1., \"text\": \"a\"}", "{\"n\": tru, \"text\": \"a\"}", "{\"n\": [1 2], \"text\": \"a\"}",
        "{text: \"a\"}", "{}", "{\"text\": \"\\"})
    EXPECT_EQ(error(good + bad).rfind(":3: column ", 0), 0u) << bad << ": " << error(good + bad);
  EXPECT_NE(error("{\"n\": " + std::string(100, '[')).find("at most 64 levels"), std::string::npos);
}
TEST(Jsonl, EmptyAndMissingFilesAreErrors) {
  EXPECT_NE(error("").find("is empty"), std::string::npos);
  EXPECT_NE(error("\n \n").find("only blank lines"), std::string::npos);
  EXPECT_THROW(source("/nowhere/x.jsonl").open("train"), kb::Error);
  const File f("{\"text\": \"a\"}");
  EXPECT_EQ(source(f.path).open("held_out")->count(), 0);
}

}  // namespace
