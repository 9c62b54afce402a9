#include "deploy/launcher/notify.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>

#include "deploy/launcher/unique_fd.h"

namespace deploy {

Notifier::Notifier() {
    if (const char* path = std::getenv("NOTIFY_SOCKET"); path != nullptr) path_ = path;
}

void Notifier::send(std::string_view message) const {
    sockaddr_un address{};
    if (path_.empty() || path_.size() >= sizeof address.sun_path) return;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    if (path_.front() == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
    const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return;
    ::sendto(fd.get(), message.data(), message.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address), length);
}

}  // namespace deploy
