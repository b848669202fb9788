// routing.h: what the choice of experts must be, in double, and which differences rounding may cause.
#pragma once
#include "array.h"

namespace check_vectors {

// scores [tokens, experts], bias [experts] (empty: none) -> ids [tokens, active], best first; ties go to the lower id.
Array best_experts(const Array& scores, const Array& bias, int64_t active);

// `got` [tokens, active] with the ids of best_experts() wherever the two differ by no more than rounding: the biased
// scores, in double, of the expert taken and of the right one are within `tolerance`. Quantile biases are differences
// of scores, so exact ties are common, and float breaks them by chance. Everything else of `got` stays as it is, to be
// compared.
Array settle_ties(const Array& got, const Array& scores, const Array& bias, double tolerance);

Array loads(const Array& ids, int64_t experts);  // -> [experts], how often each id occurs

}  // namespace check_vectors
