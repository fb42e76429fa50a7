// SPDX-License-Identifier: Apache-2.0

// The life of a server process: where it listens, what it says while it serves,
// when it ends. cmd/fleet_server.cc is little more than this; so is a script's
// run_server.
//
//   ASSIGN_OR_RETURN(ServeOptions options, ReadServeOptions(role, env));
//   options.server.load_folder = folder;
//   ASSIGN_OR_RETURN(auto server, Serving::Start(options));
//   return server->Run();

#ifndef FLEET_PS_SERVE_H_
#define FLEET_PS_SERVE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "fleet/base/deadline.h"
#include "fleet/base/interrupt.h"
#include "fleet/base/status.h"
#include "fleet/channel/meet.h"
#include "fleet/cluster/environment.h"
#include "fleet/cluster/role.h"
#include "fleet/ps/client.h"
#include "fleet/ps/server.h"

namespace fleet::ps {

struct ServeOptions {
  PsServerOptions server;
  // Where workers come. Port 0: any free one.
  channel::Address address;
  // A socket that a launcher took at this address, or -1. One that listens
  // elsewhere is left alone.
  int listen_fd = -1;
  // Where this server notes folder and number of the last save that counts;
  // started again with the same file, it begins from there, and fails if that
  // is gone. Empty: it notes nothing.
  std::string last_save_file;
  // A line about rows, memory and requests as often as this. Zero: none.
  std::chrono::milliseconds report_every = std::chrono::seconds(60);
  // Workers that are not there yet are named after so long, and then each time
  // as long again. Zero: never.
  std::chrono::milliseconds name_missing_after = std::chrono::seconds(60);
  // Updates that this server acknowledged and has lost, of workers that had
  // said good-bye, fail it when all have, or are told in its log alone.
  OnDataLoss on_data_loss = OnDataLoss::kFail;
  // A worker that is lost fails the server. For so long it still serves those
  // that are here, so that they are told who is missing where they next wait
  // for it.
  std::chrono::milliseconds linger = std::chrono::seconds(30);
  // Whether Start says in the log that strangers can join, where they can; a
  // launcher may have said it.
  bool warns_without_secret = true;
  // Asked while Run waits, so that ^C ends it.
  base::InterruptCheck interrupt;
};

// What the environment says to a server; see docs/configuration.md.
// InvalidArgument names the variable, or says that `role` is no server's.
Result<ServeOptions> ReadServeOptions(const cluster::Role& role,
                                      const cluster::Environment& env);

// What the client of a worker is made from, and where its servers are.
struct ConnectOptions {
  PsClientOptions client;
  std::vector<channel::Address> servers;
  // How long the servers may take to be there.
  std::chrono::milliseconds start_timeout = std::chrono::seconds(300);
};
Result<ConnectOptions> ReadConnectOptions(const cluster::Role& role,
                                          const cluster::Environment& env);

// A server that listens. Run may be called once; Stop from any thread.
class Serving final {
 public:
  // Unavailable when somebody else has the address; NotFound when
  // load_folder is given and is not there.
  static Result<std::unique_ptr<Serving>> Start(const ServeOptions& options);
  // For Start.
  explicit Serving(const ServeOptions& options);

  // Serves until every worker has said good-bye. DataLoss says what is lost of
  // whom (on_data_loss). Unavailable names workers that
  // were lost, unless the server goes on without them, and comes when nobody
  // is here any more, or after `linger`; otherwise what `interrupt` or Stop
  // said.
  Status Run();

  // Ends Run with `why`, which must not be ok.
  void Stop(const Status& why) { server_.Abort(why); }

  PsServer& server() { return server_; }
  const channel::Address& address() const { return server_.address(); }

 private:
  // Until all workers have stopped, or some are lost and the others had time to
  // see it.
  Status ServeUntilStopped();
  // The same, and looks after workers meanwhile: nothing here waits for a disk.
  Status WatchUntilStopped();
  void SayWhoIsMissing();
  void SayWhatIsLost();
  void Report();
  void ExpireRows();
  void Checkpoint();

  const ServeOptions options_;
  const Deadline::TimePoint begin_;
  PsServer server_;
  // What the report before this one said, and when.
  PsServerCounters reported_;
  Deadline::TimePoint reported_at_;
};

}  // namespace fleet::ps

#endif  // FLEET_PS_SERVE_H_
