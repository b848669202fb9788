// A source whose text is shown and never learnt: the weight of every sample is 0.
#include "kitbash/kinds/source.h"
#include "kitbash/plugin.h"

struct UnweightedReader {
  int64_t count() const { return 3; }
  void sample(uint64_t, int64_t i, kb::Sample out) const { out.text(i == 1 ? "shown" : "and never learnt", 0); }
};
struct Unweighted : kb::Source<Unweighted> {
  std::unique_ptr<UnweightedReader> open(std::string_view) const { return std::make_unique<UnweightedReader>(); }
};
KITBASH_SCHEMA(Unweighted)
KITBASH_PLUGIN("test-unweighted", "0.1.0", "Apache-2.0", component<Unweighted>("unweighted"))
