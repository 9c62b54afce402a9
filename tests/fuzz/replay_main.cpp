// Replays files through a fuzz target: the regression test of everything fuzzing has found, built
// by the ordinary compiler, without libFuzzer.
//   fuzz_NAME_replay FILE|FOLDER…
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "tests/fuzz/fuzz_input.h"

namespace {

std::set<std::filesystem::path> files_of(const std::filesystem::path& place) {
    std::set<std::filesystem::path> files;
    if (!std::filesystem::is_directory(place)) return {place};
    for (const auto& entry : std::filesystem::directory_iterator(place))
        files.insert(entry.path());
    return files;
}

bool replay(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        std::fprintf(stderr, "cannot read %s\n", path.c_str());
        return false;
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    // Before the call: when an assert ends the process, the last line names the input.
    std::fprintf(stderr, "%s, %zu bytes\n", path.c_str(), bytes.size());
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    int count = 0;
    for (int i = 1; i < argc; ++i) {
        for (const std::filesystem::path& file : files_of(argv[i])) {
            if (!replay(file)) return 1;
            ++count;
        }
    }
    std::fprintf(stderr, "%d inputs replayed\n", count);
    return count > 0 ? 0 : 1;
}
