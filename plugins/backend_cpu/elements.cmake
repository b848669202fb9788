# Element kernels: everything of this backend that is no matrix product, attention or loss.
set(KB_ELEMENT_SOURCES lanes_unary.cpp lanes_binary.cpp lanes_rows.cpp pointwise.cpp cast.cpp reduce.cpp sum_to.cpp shape.cpp
                       permute.cpp rows.cpp topk.cpp sources.cpp norm.cpp conv.cpp experts.cpp)
set(KB_ELEMENT_TESTS pointwise_test reduce_test shape_test rows_test sources_test norm_test conv_test experts_test)
