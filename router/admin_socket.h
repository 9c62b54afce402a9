// The Unix socket of the admin interface: mode 0660, its file gone when this is destroyed, unless
// a successor has put its own there.
#pragma once

#include <string>

#include <sys/types.h>

namespace router {

class AdminSocket {
public:
    /// Binds and listens. A socket that nobody listens on any more is replaced; nothing else ever
    /// is. Throws std::system_error.
    explicit AdminSocket(std::string path);
    ~AdminSocket();
    AdminSocket(const AdminSocket&) = delete;
    AdminSocket& operator=(const AdminSocket&) = delete;

    /// The listening descriptor, which becomes the caller's.
    [[nodiscard]] int release();
    /// Frees the path for a successor. To be called while the descriptor is open: only then does
    /// the number of its file stand for this socket.
    void free_path();

private:
    std::string path_;  // empty: freed
    int fd_ = -1;
    ino_t file_ = 0;
};

}  // namespace router
