// The Unix socket of the admin interface: mode 0660, its file gone when this is destroyed.
#pragma once

#include <string>

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

private:
    std::string path_;
    int fd_ = -1;
};

}  // namespace router
