// Counts the calls of operator new on chosen threads. Linking it replaces operator new in the whole
// program.
#pragma once

namespace replica {

void count_allocations_of_this_thread(bool is_counting);
int counted_allocations();

}  // namespace replica
