#include "kernels/backend.h"

namespace kernels {

std::string Refusal::text() const {
    return subject + ": " + value + " " + rule + "; " + remedy;
}

}  // namespace kernels
