// cached_attention.h: serving: new rows go into a cache [slots, capacity, ..], and queries look back over it.
#pragma once
#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cpu {

struct AttentionCached {  // query i of document d sees past[d] + i + 1 keys of row slot[d] (row d without slots)
  using Op = ops::AttentionCached;
  static constexpr const char* name = "attention_cached.cpu";
  static constexpr uint32_t device = KB_CPU;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

struct CacheAppend {  // in place: only the new rows are written
  using Op = ops::CacheAppend;
  static constexpr const char* name = "cache_append.cpu";
  static constexpr uint32_t device = KB_CPU;
  static void launch(const Call& c, const Op& op);
};

}  // namespace kb::cpu
