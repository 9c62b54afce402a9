# Sampling rules shared by every backend.
quadriga_library(quadriga_sampling SOURCES "${CMAKE_CURRENT_LIST_DIR}/sampling.cpp")
