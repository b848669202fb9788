# Group "products" of the CUDA kernels: kb_cuda_products, its tests (kitbash_cuda_test) and benchmarks (kitbash_cuda_bench).
kitbash_cuda_objects(kb_cuda_products SOURCES lt_product.cpp matmul.cpp matmul_parts.cu experts.cpp expert_sort.cu expert_rows.cu grouped.cpp grouped_simt.cu
                     grouped_linear_wgmma.cu grouped_outer_wgmma.cu tensor_map.cpp
                     LIBRARIES CUDA::cublasLt)

kitbash_cuda_test(backend_cuda_products SOURCES products_test.cpp LIBRARIES kb_cuda_products)
kitbash_cuda_bench(backend_cuda_products SOURCES products_bench.cpp LIBRARIES kb_cuda_products)
