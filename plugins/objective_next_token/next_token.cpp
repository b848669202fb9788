// Next-token prediction: the weighted sum of cross entropies over the tokens that have a target.
#include "kitbash/plugin.h"
using kb::Value;
using kb::Values;

struct NextToken : kb::Objective<NextToken> {
  static constexpr kb_column columns[] = {{"target", KB_I32}, {"loss_weight", KB_WIDE}};

  Value build(kb::Builder& b, Value h, Value head, const Values& column) const {
    if (column.size() != std::size(columns))
      kb::fail("next-token wants ", std::size(columns), " columns (target, loss_weight) but got ", column.size());
    return b.cross_entropy(b.linear(h, head), column[0], column[1])[0];
  }
};

KITBASH_PLUGIN("objective-next-token", "0.1.0", "Apache-2.0", component<NextToken>("next-token"))
