// ops.h: the base ops of the core: shape rule, value range, cost, gradient rule. Their kernels live in the backends.
#pragma once
#include "plugin/registry.h"

namespace kitbash {

void register_base_ops(Registry& r);

// One for each group file.
std::vector<const kb_op*> pointwise_ops();
std::vector<const kb_op*> reduce_ops();
std::vector<const kb_op*> product_ops();
std::vector<const kb_op*> shape_ops();
std::vector<const kb_op*> row_ops();
std::vector<const kb_op*> source_ops();
std::vector<const kb_op*> sequence_ops();
std::vector<const kb_op*> expert_ops();
std::vector<const kb_op*> loss_ops();

}  // namespace kitbash
