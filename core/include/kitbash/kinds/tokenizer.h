// tokenizer: bytes <-> ids, on the host. Encoding then decoding gives the same bytes for every input.
#pragma once
#include <string_view>

#include "kitbash/builder.h"

namespace kb {

template <class T>
struct
    Tokenizer {  // T: vocab(), special(name), encode(string_view) -> vector<int32_t>, decode(ids, n) -> string; all const
  static constexpr const char* kind = "tokenizer";
  static const void* service() {
    static const kb_tokenizer s{KB_STRUCT_SIZE(kb_tokenizer, decode),
                                [](const void* p) -> int64_t { return me(p).vocab(); },
                                [](const void* p, const char* n) -> int64_t { return me(p).special(n); },
                                [](const void* p, const char* t, uint64_t n, kb_sink out, kb_error* e) {
                                  return guard("encode", e, [&] {
                                    const auto v = me(p).encode(std::string_view(t, n));
                                    put(out, v.data(), v.size() * sizeof v[0]);
                                  });
                                },
                                [](const void* p, const int32_t* ids, uint64_t n, kb_sink out, kb_error* e) {
                                  return guard("decode", e, [&] {
                                    const std::string v = me(p).decode(ids, n);
                                    put(out, v.data(), v.size());
                                  });
                                }};
    return &s;
  }

 private:
  static const T& me(const void* p) { return *static_cast<const T*>(p); }
  static void put(kb_sink s, const void* d, uint64_t n) {
    if (s.put(s.ctx, d, n)) fail("the host refused the output");
  }
};

}  // namespace kb
