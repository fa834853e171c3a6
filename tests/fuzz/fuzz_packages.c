/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of package indexes, and what the script that makes environments says: anybody's bytes. What
 * is chosen has a hash of the right length and a name that leads nowhere else. */
#include "fuzz.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "client/provision/packages.h"
#include "front/workspaces/env_script.h"

static void try_wheel(const char *text, size_t n, const struct platform *host)
{
    struct package found;
    struct err err;

    if (packages_wheel(text, n, &(struct wheel_wish){"uv", NULL, host}, &found, &err) < 0)
        return;
    MUST(strlen(found.hash) == 64 && strspn(found.hash, "0123456789abcdef") == 64);
    MUST(!strchr(found.file, '/') && strncasecmp(found.file, "uv-", 3) == 0);
    MUST(found.version[0] >= '0' && found.version[0] <= '9');
}

static void try_npm(const char *text, size_t n)
{
    struct package found;
    struct err err;

    if (packages_npm(text, n, NULL, &found, &err) == 0)
        MUST(strlen(found.hash) == 128 && !strchr(found.file, '/'));
}

static void try_report(const char *text, size_t n)
{
    json_t *report = env_report(text, n);

    MUST(report && json_array_size(json_object_get(report, "interpreters")) <= 64);
    char *written = json_dumps(report, 0);
    MUST(written);
    free(written);
    json_decref(report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct platform hosts[] = {{"x86_64", false, 36, true},
                                            {"aarch64", true, 0, false}};
    char *exact = malloc(size ? size : 1);

    memcpy(exact, data, size);
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
        try_wheel(exact, size, &hosts[i]);
    try_npm(exact, size);
    try_report(exact, size);
    free(exact);
    return 0;
}
