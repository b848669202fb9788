# Group "fused" of the CUDA kernels: kb_cuda_fused, its tests (kitbash_cuda_test) and benchmarks (kitbash_cuda_bench).
kitbash_cuda_objects(kb_cuda_fused SOURCES fused_source.cpp nvrtc_library.cpp kernel_cache.cpp compiled.cpp fused_kernels.cpp
                     LIBRARIES ${CMAKE_DL_LIBS})
kitbash_cuda_test(backend_fused SOURCES fused_source_test.cpp LIBRARIES kb_cuda_fused)
kitbash_cuda_bench(backend_fused SOURCES fused_bench.cpp fused_by_hand.cu LIBRARIES kb_cuda_fused)
