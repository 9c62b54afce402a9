# quadriga_cuda_plans: packed order and plans, plain C++ that needs neither toolkit nor GPU, so that
# every build tests them.
quadriga_library(quadriga_cuda_plans
    SOURCES "${CMAKE_CURRENT_LIST_DIR}/pack_host.cpp" "${CMAKE_CURRENT_LIST_DIR}/matmul_plan.cpp"
            "${CMAKE_CURRENT_LIST_DIR}/matmul_plans.cpp" "${CMAKE_CURRENT_LIST_DIR}/sample_edits.cpp"
            "${CMAKE_CURRENT_LIST_DIR}/prefill_plan.cpp" "${CMAKE_CURRENT_LIST_DIR}/lane_plan.cpp"
            "${CMAKE_CURRENT_LIST_DIR}/kernel_names.cpp" "${CMAKE_CURRENT_LIST_DIR}/serving_sm_70.cpp"
            "${CMAKE_CURRENT_LIST_DIR}/architecture.cpp"
    PUBLIC quadriga_quant tl::expected)
