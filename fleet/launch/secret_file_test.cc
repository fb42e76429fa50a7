// SPDX-License-Identifier: Apache-2.0

#include "fleet/launch/secret_file.h"

#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fleet/base/status_matchers.h"
#include "fleet/cluster/join_settings.h"

namespace fleet::launch {
namespace {

TEST(SecretFile, IsReadByOtherProcessesOfThisUser) {
  ASSERT_OK_AND_ASSIGN(const SecretFile file, SecretFile::Make("xyzzy"));
  const pid_t child = fork();
  if (child == 0) {
    const auto secret = cluster::ReadSecretFile(file.path());
    _exit(secret.ok() && secret->text() == "xyzzy" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SecretFile, BelongsToItsUserAloneAndNobodyChangesIt) {
  ASSERT_OK_AND_ASSIGN(const SecretFile file, SecretFile::Make("xyzzy"));
  struct stat facts{};
  ASSERT_EQ(stat(file.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0400u);
  EXPECT_NE(truncate(file.path().c_str(), 0), 0);
}

TEST(SecretFile, EndsWithItsOwner) {
  std::optional<SecretFile> file = SecretFile::Make("xyzzy").value();
  const std::string path = file->path();
  file.reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace fleet::launch
