// systemd's notification protocol: one datagram per message to $NOTIFY_SOCKET. Without that
// variable nothing happens.
#pragma once

#include <string>
#include <string_view>

namespace deploy {

class Notifier {
public:
    Notifier();  // reads $NOTIFY_SOCKET; a leading '@' names an abstract socket
    explicit Notifier(std::string socket_path) : path_(std::move(socket_path)) {}
    /// For example "READY=1\nSTATUS=...". Errors are ignored: a service manager that does not
    /// listen must not stop the service.
    void send(std::string_view message) const;

private:
    std::string path_;
};

}  // namespace deploy
