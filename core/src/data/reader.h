// reader.h: one split of one source, opened.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "plugin/registry.h"
#include "recipe/recipe.h"

namespace kitbash {

struct SampleText {  // segments in order
  struct Segment {
    size_t end;    // in text
    float weight;  // 0: shown, not learnt
  };
  std::string text;
  std::vector<Segment> segments;
};

class SourceReader {
 public:
  // Throws with the name of the source in front when the split cannot be opened.
  SourceReader(const std::string& name, const ComponentConfig& c, Registry& registry, const std::string& split);
  ~SourceReader();
  int64_t count() const { return count_; }  // 0: the source has no such split
  // Pure: the same numbers, the same text. `out` is overwritten and keeps its memory.
  void sample(uint64_t seed, int64_t index, SampleText& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string where_;
  int64_t count_ = 0;
};

}  // namespace kitbash
