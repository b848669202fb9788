# Group "elements" of the CUDA kernels: kb_cuda_elements, its tests (kitbash_cuda_test) and benchmarks (kitbash_cuda_bench).
# x.cu holds kernels with plain launchers (x_cuda.h), x_kernels.cpp the kernel structs (x_kernels.h).
kitbash_cuda_objects(kb_cuda_elements SOURCES pointwise.cu cast.cu pointwise_kernels.cpp reduce.cu square_sums.cu softmax.cu reduce_kernels.cpp
                                              move.cu move_kernels.cpp scatter.cu topk.cu rows_kernels.cpp sources.cu
                                              sources_kernels.cpp norm.cu norm_kernels.cpp conv.cu conv_kernels.cpp loss.cu
                                              loss_kernels.cpp)
kitbash_cuda_test(backend_elements SOURCES elements_pointwise_test.cpp elements_reduce_test.cpp elements_move_test.cpp elements_conv_test.cpp elements_large_test.cpp
                  LIBRARIES kb_cuda_elements)
kitbash_cuda_bench(backend_elements SOURCES elements_bench.cpp LIBRARIES kb_cuda_elements)
