quadriga_test(sampling_test
    SOURCES "${CMAKE_CURRENT_LIST_DIR}/philox_test.cpp"
            "${CMAKE_CURRENT_LIST_DIR}/sampling_rules_test.cpp"
            "${CMAKE_CURRENT_LIST_DIR}/sampling_distribution_test.cpp"
            "${CMAKE_CURRENT_LIST_DIR}/sampling_logprobs_test.cpp"
    LIBS quadriga_sampling LABEL unit TIMEOUT 120)
