/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile tar. */

#include "fuzz_common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_unpack(data, size, 0);
    return 0;
}
