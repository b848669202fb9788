// tensor_values.h: the numbers of a stored tensor as doubles, for tools that compare or print them.
#pragma once
#include <vector>

#include "base/safetensors.h"

namespace kitbash {

bool is_integer_dtype(const std::string& dtype);  // BOOL, U8 ... I64

// `where` names the tensor in the error for a dtype that has no numbers here (8 bits and fewer, complex). Integers
// beyond 2^53 are rounded.
std::vector<double> tensor_values(const SafeTensor& t, const std::string& where);

}  // namespace kitbash
