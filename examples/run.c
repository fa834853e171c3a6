/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command in a workspace with libcarrel and prints what came of it.
 *
 *     build/example DIR COMMAND [ARG...]
 */
#include <carrel.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct carrel_spec spec = {
        .capture = true, .create = true, .stdin_fd = -1, .timeout_ms = 60000};
    struct carrel_result result;
    struct carrel_error error;

    if (argc < 3) {
        fprintf(stderr, "usage: %s DIR COMMAND [ARG...]\n", argv[0]);
        return 2;
    }
    spec.workspace = argv[1];
    spec.argv = argv + 2;
    spec.init_path = "build/carrel-init"; /* leave it out for an installed Carrel */
    if (carrel_run(&spec, &result, &error) < 0) {
        fprintf(stderr, "carrel: %s\n", error.message);
        return 125;
    }
    printf("exit %d after %.1f ms, %zu bytes of output:\n", result.exit_code, result.duration_ms,
           result.out_size);
    fwrite(result.out, 1, result.out_size, stdout);
    int status = result.exit_code;
    carrel_result_clear(&result);
    return status;
}
