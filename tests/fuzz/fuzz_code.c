/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a kernel: what is taken gives, written and read again, the same. */
#include "fuzz.h"

#include <string.h>

#include "front/code/line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t run = 0;
    uint64_t again_run = 0;
    json_t *line = NULL;
    json_t *again = NULL;
    enum code_line kind = code_line_read((const char *)data, size, &run, &line);

    MUST((kind == LINE_BAD) == (line == NULL) && kind < LINE_KINDS);
    if (!line)
        return 0;
    MUST(json_is_string(json_object_get(line, "type")) && run <= INT64_MAX);
    json_object_set_new(line, "run", json_integer((json_int_t)run));
    char *text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);
    MUST(text && !strpbrk(text, "\r\n"));
    MUST(code_line_read(text, strlen(text), &again_run, &again) == kind && again_run == run);
    json_object_del(line, "run");
    MUST(json_equal(line, again));
    free(text);
    json_decref(again);
    json_decref(line);
    return 0;
}
