/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile zip. */

#include "fuzz_common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_unpack(data, size, FILES_ZIP);
    return 0;
}
