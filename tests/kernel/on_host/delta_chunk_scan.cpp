// delta_chunk_scan.cu for the host.
#include "tests/kernel/on_host/cuda_words.h"
// Behind CUDA's words, which it is written in.
#include "kernels/cuda/delta_chunk_scan.cu"
