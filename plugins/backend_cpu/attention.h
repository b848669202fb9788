// attention.h: `attention` and its backward over packed documents, flash style: no matrix of queries by keys is ever
// stored.
#pragma once
#include <vector>

#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cpu {

struct Attention {  // any output may be unwanted; rows outside all documents become zero
  using Op = ops::Attention;
  static constexpr const char* name = "attention.cpu";
  static constexpr uint32_t device = KB_CPU;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

struct AttentionBackward {
  using Op = ops::AttentionBackward;
  static constexpr const char* name = "attention_backward.cpu";
  static constexpr uint32_t device = KB_CPU;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

// A tile of queries that share their keys: `tokens` from absolute row `token` (index `index` in document `document`),
// heads [head, head + heads), which all use key head `group`.
struct QueryTile {
  int64_t document, token, index, tokens, head, heads, group;
};
struct QueryTiles {
  std::vector<QueryTile> tile;
  std::vector<double> cost;  // multiply-adds
};
// past: tokens of each document before its first row, or NULL. width: key_dim + value_dim.
QueryTiles query_tiles(const int32_t* cu, const int32_t* past, int64_t documents, int64_t heads, int64_t groups,
                       bool causal, int64_t width);

// cu [documents + 1] within [0, tokens], in order; fails naming the border.
void check_borders(const char* op, const int32_t* cu, int64_t documents, int64_t tokens);

}  // namespace kb::cpu
