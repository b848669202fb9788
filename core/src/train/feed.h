// feed.h: a micro-batch into the inputs of a program.
#pragma once
#include "data/stream.h"
#include "runtime/program.h"

namespace kitbash {

// Fills tokens, target, loss_weight, cu, position and document, and the extent `tokens`. Rows past the used ones are unused:
// document -1, weight 0. Borders past the last document repeat the last one.
void feed_batch(Program& p, const MicroBatch& b);
void feed_scalar(Program& p, const char* input, double v);

}  // namespace kitbash
