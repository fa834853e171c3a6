/* SPDX-License-Identifier: Apache-2.0 */
#include "front/routes.h"

const struct route front_routes[] = {
    {HTTP_GET, "/healthz", 0, 0, 0, health_get, "", NOT_IN_PLAN},
    {HTTP_GET, "/readyz", 0, 0, 0, ready_get, "", NOT_IN_PLAN},
    {HTTP_GET, "/openapi.json", 0, 0, 0, openapi_get, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/version", 0, 0, 0, version_get, "", NOT_IN_PLAN},
    {HTTP_GET, "/metrics", SCOPE_ADMIN, 0, 0, metrics_get, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/host", SCOPE_ADMIN, 0, 0, host_get, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/audit", READERS, 0, 0, records_list,
     "after limit workspace operation actor result from to until follow", NOT_IN_PLAN},
    {HTTP_GET, "/v1/workspaces/{ws}/net", READERS, 0, 0, records_net,
     "after limit from to until follow", IN_PLAN},
    {HTTP_GET, "/v1/audit/raw", SCOPE_ADMIN, 0, 0, records_raw, "after", NOT_IN_PLAN},
    {HTTP_GET, "/v1/audit/heads", SCOPE_ADMIN, 0, 0, records_heads, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/audit/keys", SCOPE_ADMIN, 0, 0, records_keys, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/events", READERS, 0, 0, events_follow, "workspace", NOT_IN_PLAN},
    ROUTES_END,
};
