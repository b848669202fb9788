// bytes.h: each byte is a token. Ids 0..255 are the bytes, 256 begins a document, 257 ends a sample.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "kitbash/kinds/tokenizer.h"
#include "kitbash/plugin.h"

struct Bytes : kb::Tokenizer<Bytes> {
  static constexpr int32_t kBos = 256, kEos = 257, kVocab = 258;

  int64_t vocab() const { return kVocab; }
  int64_t special(const char* name) const {
    return !std::strcmp(name, "bos") ? kBos : !std::strcmp(name, "eos") ? kEos : -1;
  }
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids(text.size());
    for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }
  std::string decode(const int32_t* ids, uint64_t n) const {  // specials are no text
    std::string text;
    text.reserve(n);
    for (uint64_t i = 0; i < n; ++i) {
      if (ids[i] < 0 || ids[i] >= kVocab)
        kb::fail("an id must be in [0, ", kVocab, ") but id ", i, " of ", n, " is ", ids[i]);
      if (ids[i] < 256) text += char(ids[i]);
    }
    return text;
  }
};
