// elements_kernels.h: the kernels that are no matrix product, attention or expert op, as one list for backend.cpp.
#pragma once
#include "conv_kernels.h"
#include "loss_kernels.h"
#include "move_kernels.h"
#include "norm_kernels.h"
#include "pointwise_kernels.h"
#include "reduce_kernels.h"
#include "rows_kernels.h"
#include "sources_kernels.h"

#define KB_CUDA_ELEMENT_KERNELS                                                                  \
  KB_CUDA_POINTWISE_KERNELS, KB_CUDA_REDUCE_KERNELS, KB_CUDA_MOVE_KERNELS, KB_CUDA_ROWS_KERNELS, \
      KB_CUDA_SOURCE_KERNELS, KB_CUDA_NORM_KERNELS, KB_CUDA_CONV_KERNELS, KB_CUDA_LOSS_KERNELS
