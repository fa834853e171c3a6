/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-files: one for each workspace in use, started ahead by the broker. It waits to be told
 * which sandbox it belongs to, joins that, and answers the front's calls on its files. With
 * `--here` it belongs to none, and answers whoever started it, as that user; with `--asleep` it
 * answers for workspaces that have no sandbox. */
#include <openssl/crypto.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "files/archive/archive.h"
#include "files/serve.h"
#include "protocol/files_asleep.h"
#include "protocol/files_join.h"

int main(int argc, char **argv)
{
    struct files_joined joined;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    /* What libraries read for themselves is read here, and not where it could be anybody's. */
    files_archive_prepare();
    tzset();
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
        return 1;
    if (argc == 2 && strcmp(argv[1], "--here") == 0)
        return files_serve_one_by_one(JOIN_SOCKET) < 0 ? 1 : 0;
    if (argc == 2 && strcmp(argv[1], "--asleep") == 0)
        return files_asleep(JOIN_SOCKET) < 0 ? 1 : 0;
    if (files_join(JOIN_SOCKET, &joined) < 0)
        return 1;
    return files_serve(JOIN_SOCKET, &joined) < 0 ? 1 : 0;
}
