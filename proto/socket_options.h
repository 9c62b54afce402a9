// socket_options: what every TCP socket of ours gets. Failures are ignored: each option helps, none
// is needed for right answers.
#pragma once

namespace proto {

/// Children of this process do not inherit it.
void set_close_on_exec(int fd);

/// No Nagle delay, so that a token leaves at once; keepalive probes after 30 s, so that a peer
/// whose machine died is noticed.
void set_stream_options(int fd);

}  // namespace proto
