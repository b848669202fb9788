// source: samples of text by index. The component is the configuration; what it opens is a second object, which may hold
// files and memory, and is read from any thread. Splits: "train" and "held_out"; nothing of the one is in the other.
#pragma once
#include <memory>
#include <string_view>

#include "kitbash/builder.h"

namespace kb {

struct Sample {  // append segments in order
  kb_sample s;
  void text(std::string_view t, double weight = 1) {
    if (s.text(s.ctx, t.data(), t.size(), weight)) fail("the host refused the sample");
  }
};
template <class T>
struct Source {  // T: open(split) const -> unique_ptr<Reader>; Reader: count() const, sample(seed, index, Sample) const
  static constexpr const char* kind = "source";
  static const void* service() {
    using R = std::remove_reference_t<decltype(*std::declval<const T&>().open(std::string_view()))>;
    static const kb_source s{KB_STRUCT_SIZE(kb_source, close),
                             [](const void* p, const char* split, void** r, kb_error* e) {
                               return guard("open", e, [&] { *r = static_cast<const T*>(p)->open(split).release(); });
                             },
                             [](void* r) -> int64_t { return static_cast<const R*>(r)->count(); },
                             [](void* r, uint64_t seed, int64_t i, kb_sample out, kb_error* e) {
                               return guard("sample", e,
                                            [&] { static_cast<const R*>(r)->sample(seed, i, Sample{out}); });
                             },
                             [](void* r) { delete static_cast<R*>(r); }};
    return &s;
  }
};

}  // namespace kb
