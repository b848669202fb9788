#include "ops/ops.h"

namespace kitbash {

void register_base_ops(Registry& r) {
  for (auto group :
       {pointwise_ops, reduce_ops, product_ops, shape_ops, row_ops, source_ops, sequence_ops, expert_ops, loss_ops})
    for (const kb_op* op : group()) r.add_base_op(op);
}

}  // namespace kitbash
