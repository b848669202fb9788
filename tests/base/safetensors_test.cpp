#include "base/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "kitbash/error.h"

namespace kitbash {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kitbash_safetensors_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string raw(const std::string& header, const std::string& data, uint64_t claim) const {
    std::string bytes(8, '\0');
    for (int i = 0; i < 8; ++i) bytes[size_t(i)] = char(claim >> 8 * i & 0xFF);
    const std::string p = path("raw.safetensors");
    std::ofstream(p, std::ios::binary) << bytes << header << data;
    return p;
  }
  std::string raw(const std::string& header, const std::string& data) const { return raw(header, data, header.size()); }

  fs::path folder_;
};

std::string message(const std::string& path) {
  try {
    SafetensorsFile::open(path);
  } catch (const kb::Error& e) {
    return e.what();
  }
  return "(no error)";
}

std::string entry(const std::string& name, const char* dtype, const char* shape, const char* range) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + range + "}";
}

TEST_F(Safetensors, GivesBackWhatWasWritten) {
  const std::vector<double> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> s = {7};
  const std::vector<uint8_t> u = {1, 2, 3};
  const std::string p = path("x.safetensors");
  write_safetensors(p,
                    {{"u", "U8", {3}, u.data()},
                     {"s", "F32", {}, s.data()},
                     {"b", "F64", {2, 3}, a.data()},
                     {"none", "BF16", {0, 4}, nullptr}},
                    {{"heads", "3"}, {"quote", "a\"b\n"}});
  const SafetensorsFile f = SafetensorsFile::open(p);
  EXPECT_EQ(f.tensors().size(), 4u);
  EXPECT_EQ(f.metadata().at("heads"), "3");
  EXPECT_EQ(f.metadata().at("quote"), "a\"b\n");
  EXPECT_EQ(f.at("b").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(0, std::memcmp(f.at("b").data, a.data(), sizeof(double) * a.size()));
  EXPECT_EQ(0, std::memcmp(f.at("u").data, u.data(), u.size()));
  EXPECT_TRUE(f.at("s").shape.empty());
  EXPECT_EQ(f.at("s").elements(), 1);
  EXPECT_EQ(f.at("none").elements(), 0);
  EXPECT_EQ(f.find("absent"), nullptr);
  EXPECT_THROW(f.at("absent"), kb::Error);
}

TEST_F(Safetensors, OrdersByAlignmentThenNameAndPadsTheHeader) {
  const double d = 1;
  const uint8_t u = 2;
  const std::string p = path("order.safetensors");
  write_safetensors(p, {{"a", "U8", {1}, &u}, {"z", "F64", {1}, &d}, {"b", "F64", {1}, &d}});
  const SafetensorsFile f = SafetensorsFile::open(p);
  EXPECT_EQ(f.at("b").begin, 0u);
  EXPECT_EQ(f.at("z").begin, 8u);
  EXPECT_EQ(f.at("a").begin, 16u);
  EXPECT_EQ((fs::file_size(p) - 17) % 8, 0u);  // 8 + N: the data is 17 bytes
}

TEST_F(Safetensors, ReadsAnEmptyFileAndPaddedHeaders) {
  EXPECT_TRUE(SafetensorsFile::open(raw("{}   ", "")).tensors().empty());
}

TEST_F(Safetensors, ReplacesAFileInOneStepAndLeavesNoTemporary) {
  const double d = 1;
  const std::string p = path("again.safetensors");
  write_safetensors(p, {{"a", "F64", {1}, &d}});
  EXPECT_THROW(write_safetensors(p, {{"a", "F64", {1}, &d}, {"a", "F64", {1}, &d}}), kb::Error);
  EXPECT_EQ(SafetensorsFile::open(p).tensors().size(), 1u);
  write_safetensors(p, {{"b", "F64", {1}, &d}});
  EXPECT_NE(SafetensorsFile::open(p).find("b"), nullptr);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Safetensors, RefusesToWriteWhatItCouldNotRead) {
  const double d = 1;
  const std::string p = path("bad.safetensors");
  EXPECT_THROW(write_safetensors(p, {{"a", "F128", {1}, &d}}), kb::Error);
  EXPECT_THROW(write_safetensors(p, {{"a", "F64", {-1}, &d}}), kb::Error);
  EXPECT_THROW(write_safetensors(p, {{"a", "F64", {1}, nullptr}}), kb::Error);
  EXPECT_THROW(write_safetensors(p, {{"a", "F4", {1}, &d}}), kb::Error);
  EXPECT_THROW(write_safetensors(p, {{"__metadata__", "F64", {1}, &d}}), kb::Error);
  EXPECT_THROW(write_safetensors(p, {{"\xFF", "F64", {1}, &d}}), kb::Error);
  EXPECT_THROW(write_safetensors(p, {{"a", "F64", {int64_t(1) << 40, int64_t(1) << 40}, &d}}), kb::Error);
  EXPECT_THROW(write_safetensors(path("no/such/folder/x"), {}), kb::Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Safetensors, NamesTheFileAndTheTensorInEveryMalformedCase) {
  const std::string eight(8, 'x'), sixteen(16, 'x');
  struct Case {
    const char* what;
    std::string header, data, expect;
    bool names_tensor = true;
  };
  const std::vector<Case> cases = {
      {"array", "[]", "", "must be a JSON object", false},
      {"leading blank", " {}", "", "first byte must be '{'", false},
      {"empty header", "", "", "first byte must be '{'", false},
      {"cut JSON", "{\"a\":", "", "not valid JSON", false},
      {"text after JSON", "{}x", "", "not valid JSON", false},
      {"not UTF-8", "{\"\xFF\":1}", "", "must be UTF-8 but byte 2", false},
      {"tensor twice", "{" + entry("a", "U8", "[8]", "[0,8]") + "," + entry("a", "U8", "[8]", "[0,8]") + "}", eight,
       "has the key 'a' twice", false},
      {"key twice", R"({"a":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}})", eight,
       "the key 'dtype' twice", false},
      {"metadata key twice", R"({"__metadata__":{"k":"1","k":"2"}})", "", "the key 'k' twice", false},
      {"metadata number", R"({"__metadata__":{"k":1}})", "", "'k' must be a string but got 1", false},
      {"metadata list", R"({"__metadata__":[]})", "", "__metadata__ must be an object", false},
      {"no object", R"({"a":1})", "", "must be an object"},
      {"no dtype", R"({"a":{"shape":[8],"data_offsets":[0,8]}})", eight, "has no 'dtype'"},
      {"no shape", R"({"a":{"dtype":"U8","data_offsets":[0,8]}})", eight, "has no 'shape'"},
      {"no offsets", R"({"a":{"dtype":"U8","shape":[8]}})", eight, "has no 'data_offsets'"},
      {"unknown key", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"z":0}})", eight, "unknown key 'z'"},
      {"bad dtype", "{" + entry("a", "F33", "[2]", "[0,8]") + "}", eight, "but got 'F33'"},
      {"dtype number", R"({"a":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})", eight, "dtype must be a string"},
      {"negative shape", "{" + entry("a", "U8", "[-8]", "[0,8]") + "}", eight, "must not be negative but got -8"},
      {"broken shape", "{" + entry("a", "U8", "[8.5]", "[0,8]") + "}", eight, "whole number"},
      {"shape beyond u64", "{" + entry("a", "U8", "[99999999999999999999]", "[0,8]") + "}", eight, "below 2^64"},
      {"shape beyond i64", "{" + entry("a", "U8", "[9223372036854775808]", "[0,8]") + "}", eight, "overflows"},
      {"product overflows", "{" + entry("a", "U8", "[4294967296,4294967296,2]", "[0,8]") + "}", eight, "overflows"},
      {"bits overflow", "{" + entry("a", "F64", "[1152921504606846976]", "[0,8]") + "}", eight, "overflows"},
      {"half a byte", "{" + entry("a", "F4", "[15]", "[0,8]") + "}", eight, "whole byte"},
      {"wrong size", "{" + entry("a", "F64", "[2]", "[0,8]") + "}", eight, "must have 16 bytes"},
      {"one offset", "{" + entry("a", "U8", "[8]", "[8]") + "}", eight, "must be [begin, end]"},
      {"negative offset", "{" + entry("a", "U8", "[8]", "[-8,0]") + "}", eight, "must not be negative"},
      {"backwards", "{" + entry("a", "U8", "[8]", "[8,0]") + "}", eight, "must not run backwards"},
      {"hole at the start", "{" + entry("a", "U8", "[8]", "[8,16]") + "}", sixteen, "leaves a hole"},
      {"hole between", "{" + entry("x", "U8", "[4]", "[0,4]") + "," + entry("a", "U8", "[8]", "[8,16]") + "}", sixteen,
       "ends at 4 but it begins at 8"},
      {"overlap", "{" + entry("x", "U8", "[8]", "[0,8]") + "," + entry("a", "U8", "[8]", "[4,12]") + "}",
       std::string(12, 'x'), "overlaps"},
      {"cut data", "{" + entry("a", "U8", "[16]", "[0,16]") + "}", eight, "cut short"},
      {"trailing bytes", "{" + entry("a", "U8", "[8]", "[0,8]") + "}", sixteen, "8 trailing bytes", false},
      {"data without tensors", "{}", eight, "8 trailing bytes", false},
  };
  for (const Case& c : cases) {
    const std::string p = raw(c.header, c.data);
    const std::string got = message(p);
    EXPECT_NE(got.find(c.expect), std::string::npos) << c.what << ": " << got;
    EXPECT_NE(got.find(c.names_tensor ? "[" + p + ": a]" : "[" + p + "]"), std::string::npos) << c.what << ": " << got;
  }
}

TEST_F(Safetensors, RefusesHeaderSizesThatCannotBe) {
  EXPECT_NE(message(raw("{}", "", 100'000'001)).find("at most 100000000 bytes"), std::string::npos);
  EXPECT_NE(message(raw("{}", "", ~uint64_t(0))).find("at most 100000000 bytes"), std::string::npos);
  EXPECT_NE(message(raw("{}", "", 3)).find("claims 3 bytes but 2 follow"), std::string::npos);
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
  std::ofstream(path("short"), std::ios::binary) << "abc";
  EXPECT_NE(message(path("short")).find("has 3 bytes"), std::string::npos);
  EXPECT_NE(message(path("absent")).find("cannot be opened"), std::string::npos);
  EXPECT_NE(message(folder_.string()).find("regular file"), std::string::npos);
}

}  // namespace
}  // namespace kitbash
