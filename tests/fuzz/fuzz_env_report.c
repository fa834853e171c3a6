/* SPDX-License-Identifier: Apache-2.0 */
/* What the script that makes environments says: anybody's bytes. */
#include "fuzz.h"

#include <jansson.h>
#include <string.h>

#include "front/workspaces/env_script.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *exact = malloc(size ? size : 1);

    memcpy(exact, data, size);
    json_t *report = env_report(exact, size);
    MUST(report && json_array_size(json_object_get(report, "interpreters")) <= 64);
    char *written = json_dumps(report, 0);
    MUST(written);
    free(written);
    json_decref(report);
    free(exact);
    return 0;
}
