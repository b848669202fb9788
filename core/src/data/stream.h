// stream.h: packed micro-batches from the sources of a recipe. What comes next is a pure function of a few numbers, so that a
// run resumes in the middle of an epoch without replaying anything.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/registry.h"
#include "recipe/recipe.h"

namespace kitbash {

struct MicroBatch {
  std::vector<int32_t> tokens, target;  // [used]; target -1: not counted
  std::vector<float> weight;            // [used] loss_weight
  std::vector<int32_t> cu;              // borders of the documents, from 0 to used
  int64_t used = 0, documents = 0;
  int64_t counted = 0;  // tokens with weight > 0 and a target
  int64_t bytes = 0;    // bytes of text among the counted targets (specials are no bytes)
};

struct OpenSample {  // drawn, and not used up
  std::string source;
  int64_t number = 0;  // samples of the source drawn before it
  int64_t offset = 0;  // its tokens that are used, at least 1
  bool operator==(const OpenSample&) const = default;
};

// Everything that says which token comes next.
struct DataPosition {
  int64_t draws = 0;                     // samples drawn, over all sources
  std::map<std::string, int64_t> drawn;  // by source: samples drawn; epoch = drawn / count
  int64_t turn = 0;                      // the lane that the next document comes from
  std::map<int64_t, OpenSample> open;    // by lane; a lane without one draws its next sample
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
  void encode_onto(std::string_view text, std::vector<int32_t>& ids) const;  // appends
  std::string decode(const std::vector<int32_t>& ids) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct StreamOptions {
  std::string split = "train";
  uint64_t seed = 0;
  int64_t context = 0, micro_tokens = 0, max_documents = 0;
  // Share of each source in the tokens drawn; empty: all sources alike. A sample is drawn from source s with the frequency
  // share[s] / mean tokens of a sample of s, which is measured on 256 samples spread over the source (order.h).
  std::map<std::string, double> mix;
};

// Documents are [bos] text..., with eos after each sample. With `join`, samples follow each other in a document until it has
// `context` tokens; what is left of a sample opens the next document, after a bos of its own. Without, a document is a sample,
// or a piece of one that is longer than the context; a sample is cut for no other reason. Nothing is dropped, and over an epoch
// every token of text and every eos is the target of exactly one position: the last token before a cut has the first one after
// it as target, and the bos after a cut has none. A last token with nothing to follow has target -1 and weight 0. Weights are those
// of the target's segment; an eos has its sample's last. An empty sample is left out with a notice.
//
// The split "train" has [data] interleave lanes, "held_out" one. Documents come from the lanes in turn, and a lane is a stream as
// above: it cuts documents from its one open sample, then draws the next from the order that all lanes share. So the pieces of
// a long sample are that many documents apart and a batch is mixed; one piece after another would fill whole steps with one
// text. A document that does not fit into the room left ends the micro-batch, and its lane keeps the turn.
class DataStream {
 public:
  // Opens the sources of the mix; throws when one cannot be opened, or when none has a sample in the split.
  DataStream(const DataConfig& data, Registry& registry, const Tokenizer& tokenizer, const StreamOptions& o);
  ~DataStream();
  // The next micro-batch: documents of at most `context` tokens until `micro_tokens` or `max_documents` is reached. Endless for
  // the split "train". For "held_out": once through all samples in order, source by source by name, then an empty batch.
  MicroBatch next();
  DataPosition position() const;
  // Between micro-batches, to what position() once said, also of a stream with another mix or context; what follows is the same.
  // Throws when the sources or the lanes cannot have such a position.
  void seek(const DataPosition& p);
  int64_t samples(const std::string& source) const;  // in the split
  // Notices since the last call, in words: an empty sample, invalid UTF-8 (kept as bytes), the start of an epoch.
  std::vector<std::string> notices();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kitbash
