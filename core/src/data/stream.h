// stream.h: packed micro-batches from the sources of a recipe. What comes next is a pure function of a few numbers, so that a
// run resumes in the middle of an epoch without replaying anything.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/registry.h"
#include "recipe/recipe.h"

namespace kitbash {

struct MicroBatch {
  std::vector<int32_t> tokens, target;  // [used]; target -1: not counted
  std::vector<float> weight;            // [used] loss_weight
  std::vector<int32_t> cu;              // borders of the documents, from 0 to used
  int64_t used = 0, documents = 0;
  int64_t counted = 0;                  // tokens with weight > 0 and a target
  int64_t bytes = 0;                    // bytes of text among the counted targets (specials are no bytes)
};

// Everything that says which token comes next.
struct DataPosition {
  int64_t draws = 0;                      // samples drawn, over all sources
  std::map<std::string, int64_t> drawn;   // by source: samples drawn; epoch = drawn / count
  std::string source;                     // of the sample that is not used up, with
  int64_t offset = 0;                     // the tokens of it that are used; 0: none is open
  bool operator==(const DataPosition&) const = default;
};

class Tokenizer {  // a tokenizer component, opened
 public:
  Tokenizer(const ComponentConfig& c, Registry& registry);
  ~Tokenizer();
  int64_t vocab() const;
  int64_t bos() const;  // id; -1: none
  int64_t eos() const;
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(const std::vector<int32_t>& ids) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct StreamOptions {
  std::string split = "train";
  uint64_t seed = 0;
  int64_t context = 0, micro_tokens = 0, max_documents = 0;
  std::map<std::string, double> mix;  // share of each source in the tokens drawn; empty: all sources alike
};

class DataStream {
 public:
  DataStream(const DataConfig& data, Registry& registry, const Tokenizer& tokenizer, const StreamOptions& o);
  ~DataStream();
  // The next micro-batch: documents of at most `context` tokens, cut from samples or joined from several of them (DataConfig::
  // join), until `micro_tokens` or `max_documents` is reached. Endless for the split "train". For "held_out": once through all
  // samples in order, then an empty batch (used == 0).
  MicroBatch next();
  const DataPosition& position() const;
  void seek(const DataPosition& p);
  int64_t samples(const std::string& source) const;  // in the split
  // Notices since the last call, in words: an empty sample, invalid UTF-8 (kept as bytes), the start of an epoch.
  std::vector<std::string> notices();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kitbash
