/* SPDX-License-Identifier: Apache-2.0 */
#include "client/core/where.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/state_dir.h"

const char *where_env(const char *name)
{
    const char *value = getenv(name); /* one thread here; NOLINT(concurrency-mt-unsafe) */

    return value && *value ? value : NULL;
}

static int join(char *path, size_t size, const char *front, const char *back, struct err *err)
{
    if (strlen(front) + strlen(back) >= size)
        return err_set(err, ERR_INVALID, 0, "the path '%.80s...' is too long", front);
    snprintf(path, size, "%s%s", front, back);
    return 0;
}

int where_state(const char *option, char *path, size_t size, struct err *err)
{
    if (option)
        return *option ? join(path, size, option, "", err)
                       : err_set(err, ERR_INVALID, 0, "--state '': name a directory");
    if (state_dir_default(path, size) < 0)
        return err_set(err, ERR_INVALID, 0, "HOME is not set; give --state DIR");
    return 0;
}

static int take_url(const char *url, struct where *ret, struct err *err)
{
    size_t n = strlen(url);

    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return err_set(err, ERR_INVALID, 0,
                       "CARREL_URL '%.80s': write an address such as http://127.0.0.1:7070", url);
    if (join(ret->url, sizeof(ret->url), url, "", err) < 0)
        return -1;
    while (n > 0 && ret->url[n - 1] == '/')
        ret->url[--n] = '\0';
    return 0;
}

int where_daemon(const char *state, struct where *ret, struct err *err)
{
    const char *url = where_env("CARREL_URL");
    const char *socket_path = where_env("CARREL_SOCKET");
    char dir[WHERE_PATH];

    *ret = (struct where){.key = where_env("CARREL_KEY"), .ca = where_env("CARREL_CA")};
    if (!ret->ca)
        ret->ca = where_env("SSL_CERT_FILE");
    if (!state && url)
        return take_url(url, ret, err);
    snprintf(ret->url, sizeof(ret->url), "http://carrel");
    if (!state && socket_path) {
        if (join(ret->socket, sizeof(ret->socket), socket_path, "", err) < 0)
            return -1;
    } else if (where_state(state, dir, sizeof(dir), err) < 0 ||
               join(ret->socket, sizeof(ret->socket), dir, "/carrel.sock", err) < 0) {
        return -1;
    }
    if (strlen(ret->socket) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return err_set(err, ERR_INVALID, 0,
                       "the path of the socket, '%.200s', is too long for the kernel (107 bytes); "
                       "set CARREL_SOCKET to a shorter one",
                       ret->socket);
    return 0;
}
