// The kernels of sm_70 for the host.
#include "tests/kernel/on_host/cuda_words.h"
// Behind CUDA's words, which they are written in.
#include "kernels/cuda/prepare_lanes.cu"
#include "kernels/cuda/volta_iq4_nl.cu"
#include "kernels/cuda/volta_iq4_xs.cu"
#include "kernels/cuda/volta_q4_0.cu"
#include "kernels/cuda/volta_q4_k.cu"
#include "kernels/cuda/volta_q5_k.cu"
#include "kernels/cuda/volta_q6_k.cu"
#include "kernels/cuda/volta_q8_0.cu"
