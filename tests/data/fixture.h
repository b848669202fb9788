// fixture.h: sources of a few texts in a folder of their own, the bytes tokenizer, and what every micro-batch must be.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "data/stream.h"
#include "kitbash/error.h"

namespace kitbash::test {
namespace fs = std::filesystem;

constexpr int32_t kBos = 256, kEos = 257;

struct Data {
  fs::path folder = fs::temp_directory_path() / kb::text("kitbash-stream-", getpid());
  Registry registry{Catalog::discover({KITBASH_PLUGINS})};
  DataConfig config;
  std::unique_ptr<Tokenizer> tokenizer;

  Data() {
    fs::create_directories(folder);
    config.tokenizer = load_component("tokenizer", "bytes", "", {}, registry.catalog());
    tokenizer = std::make_unique<Tokenizer>(*config.tokenizer, registry);
  }
  ~Data() { fs::remove_all(folder); }
  void source(const std::string& name, const std::vector<std::string>& texts,
              const std::vector<std::string>& held_out = {}) {
    const auto write = [&](const std::string& file, const std::vector<std::string>& lines) {
      std::ofstream f(folder / file);
      for (const auto& t : lines) f << "{\"text\": \"" << t << "\"}\n";
      return (folder / file).string();
    };
    std::vector<std::string> set{"path=" + write(name + ".train", texts)};
    if (!held_out.empty()) set.push_back("held_out=" + write(name + ".held", held_out));
    config.sources[name] = load_component("source", "jsonl", "", set, registry.catalog());
  }
  DataStream open(const StreamOptions& o) { return DataStream(config, registry, *tokenizer, o); }
};

inline std::vector<std::string> words(int n, char letter, int longest) {
  std::vector<std::string> r;
  for (int i = 0; i < n; ++i) r.push_back(kb::text(letter, i, std::string(size_t(i * 7 % longest), letter)));
  return r;
}
inline StreamOptions options(int64_t context, int64_t micro, int64_t documents = 1000) {
  StreamOptions o;
  o.seed = 11, o.context = context, o.micro_tokens = micro, o.max_documents = documents;
  return o;
}
inline bool same(const MicroBatch& a, const MicroBatch& b) {
  return a.tokens == b.tokens && a.target == b.target && a.weight == b.weight && a.cu == b.cu && a.used == b.used &&
         a.documents == b.documents && a.counted == b.counted && a.bytes == b.bytes;
}
inline void expect_well_formed(const MicroBatch& b, const StreamOptions& o) {
  ASSERT_EQ(b.used, int64_t(b.tokens.size()));
  ASSERT_EQ(b.target.size(), b.tokens.size());
  ASSERT_EQ(b.weight.size(), b.tokens.size());
  ASSERT_EQ(b.documents + 1, int64_t(b.cu.size()));
  ASSERT_LE(b.used, o.micro_tokens);
  ASSERT_LE(b.documents, o.max_documents);
  ASSERT_EQ(b.cu.front(), 0);
  ASSERT_EQ(b.cu.back(), b.used);
  int64_t counted = 0, bytes = 0;
  for (size_t d = 0; d + 1 < b.cu.size(); ++d) {
    const int32_t begin = b.cu[d], end = b.cu[d + 1];
    ASSERT_GT(end - begin, 1);
    ASSERT_LE(end - begin, o.context);
    ASSERT_EQ(b.tokens[size_t(begin)], kBos);
    for (int32_t t = begin; t < end; ++t) {
      const int32_t target = b.target[size_t(t)];
      if (t + 1 < end && target >= 0) {
        ASSERT_EQ(target, b.tokens[size_t(t) + 1]);
      }
      ASSERT_EQ(b.weight[size_t(t)] > 0, target >= 0);
      counted += target >= 0, bytes += target >= 0 && target < 256;
    }
  }
  ASSERT_EQ(counted, b.counted);
  ASSERT_EQ(bytes, b.bytes);
}
// The documents as text, bos and eos as '|'.
inline std::vector<std::string> documents_of(const MicroBatch& b) {
  std::vector<std::string> r;
  for (size_t i = 0; i + 1 < b.cu.size(); ++i) {
    std::string t;
    for (int32_t j = b.cu[i]; j < b.cu[i + 1]; ++j) t += b.tokens[size_t(j)] < 256 ? char(b.tokens[size_t(j)]) : '|';
    r.push_back(t);
  }
  return r;
}

}  // namespace kitbash::test
