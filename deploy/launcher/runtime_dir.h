// The runtime folder: sockets, lock, key and state of one fleet. Fleets with different folders on
// one host are independent.
//
//   launcher.lock  held (open file description lock) by the one `up` of this folder
//   load.lock      held while a replica loads; across launchers that share the folder
//   control.sock   commands of the other subcommands
//   internal.key   64 hex digits, 0600, for `curl`
//   state.json     pid and start time of every process, to find leftovers of a killed launcher
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "deploy/launcher/unique_fd.h"

namespace deploy {

/// `configured`, else $RUNTIME_DIRECTORY, else /run/quadriga for root, else
/// $XDG_RUNTIME_DIR/quadriga. Throws StartError when there is none.
std::string choose_runtime_dir(const std::string& configured);

/// Makes the folder, 0700, if it is not there. Throws StartError.
void make_runtime_dir(const std::string& path);

/// Where the router's admin interface listens.
inline std::string admin_socket_path(const std::string& runtime_dir) {
    return runtime_dir + "/router-admin.sock";
}

/// An open file description lock on a file: not inherited, released when the holder dies.
class FileLock {
public:
    /// Opens (and makes) the file; does not lock. Throws StartError.
    explicit FileLock(std::string path);
    /// False: somebody else holds it. Writes `holder_text` into the file when taken.
    bool try_take(const std::string& holder_text);
    void drop();
    /// What the present holder wrote, at most 200 bytes.
    std::string holder() const;

private:
    std::string path_;
    UniqueFd fd_;
};

/// A process, named for good: pids are reused, pid and start time together are not.
struct ProcessIdentity {
    std::string name;  // "router", "replica 2"
    pid_t pid = 0;
    unsigned long long start_ticks = 0;
};

struct FleetRecord {
    ProcessIdentity launcher;
    std::string url;
    std::vector<ProcessIdentity> children;
};

/// Written by rename, so a reader sees one whole version. Failures are logged by the caller.
bool write_record(const std::string& runtime_dir, const FleetRecord& record);
/// None when there is no readable record.
std::optional<FleetRecord> read_record(const std::string& runtime_dir);
void remove_record(const std::string& runtime_dir);

/// Kills what the record still names and is alive, and waits up to 5 s for its end. Returns the
/// names of the killed.
std::vector<std::string> kill_leftovers(const FleetRecord& record);

/// Writes the key file, 0600. Throws StartError.
void write_key_file(const std::string& runtime_dir, const std::string& key);
/// 64 hex digits from the kernel's random source.
std::string make_internal_key();
/// A memfd with `text`, close-on-exec; spawn() hands it on. Throws std::system_error.
UniqueFd memfd_with(const std::string& text);

}  // namespace deploy
