#include "tests/unit/engine/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local bool is_counted_thread = false;
std::atomic<int> allocations = 0;

void* count_and_allocate(std::size_t size) {
    if (is_counted_thread) ++allocations;
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
    return count_and_allocate(size);
}
void* operator new[](std::size_t size) {
    return count_and_allocate(size);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}

namespace replica {

void count_allocations_of_this_thread(bool is_counting) {
    is_counted_thread = is_counting;
}
int counted_allocations() {
    return allocations;
}

}  // namespace replica
