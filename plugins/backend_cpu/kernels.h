// kernels.h: every kernel of this plugin, as two lists for backend.cpp. A group has one header that declares its kernel
// structs (launch is defined in the .cpp of the same name); elements.h declares KB_ELEMENT_KERNELS in the same way.
#pragma once
#include "attention.h"
#include "cached_attention.h"
#include "cross_entropy.h"
#include "elements.h"
#include "grouped.h"
#include "matmul.h"

#define KB_PRODUCT_KERNELS                                                                                    \
  kernel<kb::cpu::Matmul>(), kernel<kb::cpu::GroupedLinear>(), kernel<kb::cpu::GroupedOuter>(),               \
      kernel<kb::cpu::Attention>(), kernel<kb::cpu::AttentionBackward>(), kernel<kb::cpu::AttentionCached>(), \
      kernel<kb::cpu::CacheAppend>(), kernel<kb::cpu::CrossEntropy>(), kernel<kb::cpu::CrossEntropyBackward>()
