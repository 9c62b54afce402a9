// A key file over the life of the process: read at the start, on request again, and looked at for
// changes that nobody has asked to be read yet.
//
// A file that was good leaves a copy in a folder of ours (mode 0600; it holds digests, no keys). A
// process that is started again while the file is bad takes the copy: a slip of the editor must
// neither lock everybody out nor let everybody in when something else makes the process restart.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "router/key_file.h"

namespace router {

class KeySource {
public:
    /// `path`: empty is no file, which is good and has no entries. `copy`: empty keeps none.
    KeySource(std::string path, std::string copy);

    /// The entries of the file; of the copy, with an error line in the log, when it is bad.
    [[nodiscard]] tl::expected<std::vector<KeyEntry>, std::string> read_first();
    /// The entries of the file.
    [[nodiscard]] tl::expected<std::vector<KeyEntry>, std::string> read_again();

    [[nodiscard]] bool is_used() const { return !path_.empty(); }
    /// First digits of the SHA-256 of what is in use; empty without a file.
    [[nodiscard]] std::string digest() const;
    /// The file on disk is another one than what is in use. Reads it only when its time or size
    /// has changed since the last look.
    [[nodiscard]] bool has_drifted();

private:
    struct Mark {
        std::int64_t changed_ns = 0;
        std::int64_t size = -1;
        std::uint64_t node = 0;
        bool operator==(const Mark&) const = default;
    };
    [[nodiscard]] Mark mark_of_file() const;
    void keep_copy(const std::string& text) const;

    std::string path_;
    std::string copy_;
    Sha256 in_use_{};
    Mark looked_at_;
    bool has_drifted_ = false;
};

}  // namespace router
