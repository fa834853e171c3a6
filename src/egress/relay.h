/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How carrying on went. */
enum relay {
    RELAY_FINE,
    RELAY_REFUSED, /* by the look */
    RELAY_SPENT,   /* bytes_per_hour */
    RELAY_INSIDE,  /* that end failed */
    RELAY_OUTSIDE,
    RELAY_OVER, /* both have come to their end */
};
