// elements.h: the kernels that are no matrix product, attention or loss, as one list for the plugin.
#pragma once
#include "cast.h"
#include "conv.h"
#include "experts.h"
#include "norm.h"
#include "pointwise.h"
#include "reduce.h"
#include "rows.h"
#include "shape.h"
#include "sources.h"

#define KB_ELEMENT_KERNELS                                                                                        \
  KB_POINTWISE_KERNELS, KB_CAST_KERNELS, KB_REDUCE_KERNELS, KB_SHAPE_KERNELS, KB_ROWS_KERNELS, KB_SOURCE_KERNELS, \
      KB_NORM_KERNELS, KB_CONV_KERNELS, KB_EXPERT_KERNELS
