// The end of the certificate that clients see: a process outlives what it has read at its start, so
// the days that are left are counted anew for the log (once a day), the dashboard and /metrics.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "proto/tls.h"

namespace router {

/// A certificate with fewer days to go is said.
inline constexpr int kCertificateDaysShort = 14;

/// "12 days left", or a warning where there are few.
[[nodiscard]] std::string days_left_text(int days);
/// A sentence for operators; none while there is time.
[[nodiscard]] std::optional<std::string> certificate_warning(int days);

/// Tells when it is time to say it in the log: at once, then once a day. Decision thread only.
class CertificateWatch {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::hours kEvery{24};

    /// The days left, when there are few and a line about it is due.
    [[nodiscard]] std::optional<int> look(const proto::TlsContext& context, Clock::time_point now,
                                          std::chrono::system_clock::time_point today);
    /// Another certificate is in use.
    void begin_anew() { due_ = {}; }

private:
    std::optional<Clock::time_point> due_;  // none: now
};

}  // namespace router
