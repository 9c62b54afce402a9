#include "proto/server_stream.h"

#include <algorithm>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>

namespace proto {
namespace {

namespace asio = boost::asio;

/// One record: small parts (the size of a chunk, its bytes, its end) leave as one.
constexpr std::size_t kRecordBytesMax = std::size_t{16} * 1024;

}  // namespace

void ServerStream::start_tls(std::shared_ptr<const TlsContext> context) {
    tls_ = std::make_unique<TlsSession>(std::move(context), socket_.native_handle());
}

std::size_t ServerStream::read_some(char* bytes, std::size_t size,
                                    boost::system::error_code& error) {
    if (tls_ == nullptr) return socket_.read_some(asio::buffer(bytes, size), error);
    const TlsSession::Transfer transfer = tls_->read(bytes, size);
    may_hold_more_ = transfer.status == TlsSession::Status::kDone;
    read_wait_ = asio::socket_base::wait_read;
    switch (transfer.status) {
        case TlsSession::Status::kDone:
            error.clear();
            return transfer.bytes;
        case TlsSession::Status::kWantWrite:  // an answer to the peer's change of keys
            read_wait_ = asio::socket_base::wait_write;
            error = asio::error::would_block;
            return 0;
        case TlsSession::Status::kWantRead:
            error = asio::error::would_block;
            return 0;
        case TlsSession::Status::kEnded:
            error = asio::error::eof;
            return 0;
        case TlsSession::Status::kPlainHttp:
        case TlsSession::Status::kFailed:
            break;
    }
    error = asio::error::connection_reset;
    return 0;
}

std::size_t ServerStream::write_some(const Parts& parts, boost::system::error_code& error) {
    if (tls_ == nullptr) {
        std::array<asio::const_buffer, std::tuple_size_v<Parts>> buffers;
        for (std::size_t i = 0; i < parts.size(); ++i)
            buffers.at(i) = asio::const_buffer(parts.at(i).data(), parts.at(i).size());
        return socket_.write_some(buffers, error);
    }
    const auto first = std::ranges::find_if(parts, [](auto part) { return !part.empty(); });
    if (first == parts.end()) return 0;
    std::string_view bytes = *first;
    std::array<char, kRecordBytesMax> record;
    if (bytes.size() < record.size()) {
        std::size_t size = 0;
        for (auto part = first; part != parts.end() && size < record.size(); ++part) {
            const std::size_t count = std::min(part->size(), record.size() - size);
            std::copy_n(part->data(), count, record.data() + size);  // a part may be nothing at all
            size += count;
        }
        bytes = {record.data(), size};
    }
    const TlsSession::Transfer transfer = tls_->write(bytes);
    switch (transfer.status) {
        case TlsSession::Status::kDone:
            error.clear();
            return transfer.bytes;
        case TlsSession::Status::kWantWrite:
            error = asio::error::would_block;
            return 0;
        default:  // reading is never needed to write, since keys are not negotiated again
            error = asio::error::connection_reset;
            return 0;
    }
}

void ServerStream::end() {
    if (tls_ != nullptr) tls_->end();
    boost::system::error_code ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
}

void ServerStream::close() {
    tls_.reset();  // its descriptor may soon be somebody else's
    boost::system::error_code ignored;
    socket_.close(ignored);
}

}  // namespace proto
