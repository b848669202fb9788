# Group "attention" of the CUDA kernels: kb_cuda_attention, its tests and benchmarks.
kitbash_cuda_objects(kb_cuda_attention SOURCES attention_kernels.cpp attention_wgmma.cpp attention_common.cu attention_tiles.cu attention_f32.cu
                     attention_forward_bf16.cu attention_backward_bf16.cu attention_forward_wgmma.cu attention_backward_wgmma.cu
                     cached_attention.cu cached_attention_bf16.cu)

kitbash_cuda_test(backend_cuda_attention SOURCES attention_test.cpp tensor_map.cpp LIBRARIES kb_cuda_attention)
kitbash_cuda_bench(backend_cuda_attention SOURCES attention_bench.cpp tensor_map.cpp LIBRARIES kb_cuda_attention)
