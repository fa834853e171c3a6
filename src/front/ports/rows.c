/* SPDX-License-Identifier: Apache-2.0 */
#include "front/store/db.h"

#define COLUMNS "workspace, port, hash, token, access, made_by, created_ms"

static int read_port(struct query *q, struct arena *arena, struct store_port *ret, struct err *err)
{
    struct store_port port = {
        .workspace = query_column_text(q, 0, arena),
        .port = (unsigned)query_column_number(q, 1),
        .hash = query_column_text(q, 2, arena),
        .token = query_column_text(q, 3, arena),
        .access = query_column_text(q, 4, arena),
        .made_by = query_column_text(q, 5, arena),
        .created_ms = query_column_number(q, 6),
    };

    int rc = query_row_done(q, err);
    if (rc > 0)
        *ret = port;
    return rc;
}

int store_port_put(struct store *store, const struct store_port *port, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PORT_PUT,
                 "INSERT INTO ports (" COLUMNS ") VALUES (?,?,?,?,?,?,?)"
                 " ON CONFLICT (workspace, port) DO UPDATE SET hash = excluded.hash,"
                 " token = excluded.token, access = excluded.access, made_by = excluded.made_by,"
                 " created_ms = excluded.created_ms");

    query_text(&q, port->workspace);
    query_number(&q, port->port);
    query_text(&q, port->hash);
    query_text(&q, port->token);
    query_text(&q, port->access);
    query_text(&q, port->made_by);
    query_number(&q, port->created_ms);
    return query_run(&q, NULL, err);
}

int store_port_by_hash(struct store *store, struct arena *arena, const char *hash,
                       struct store_port *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PORT_BY_HASH, "SELECT " COLUMNS " FROM ports WHERE hash = ?");

    query_text(&q, hash);
    int rc = query_step(&q, err);
    return rc > 0 ? read_port(&q, arena, ret, err) : rc;
}

int store_port_remove(struct store *store, const char *workspace, unsigned port, struct err *err)
{
    int changed = 0;
    scoped_query struct query q =
        query_on(store, QUERY_PORT_REMOVE, "DELETE FROM ports WHERE workspace = ? AND port = ?");

    query_text(&q, workspace);
    query_number(&q, port);
    return query_run(&q, &changed, err) < 0 ? -1 : changed;
}

int store_ports(struct store *store, struct arena *arena, const char *workspace,
                struct store_port *ret, struct err *err)
{
    scoped_query struct query q =
        query_on(store, QUERY_PORTS,
                 "SELECT " COLUMNS " FROM ports WHERE workspace = ? ORDER BY port LIMIT ?");
    int n = 0;
    int rc;

    query_text(&q, workspace);
    query_number(&q, STORE_PORTS_MOST);
    while ((rc = query_step(&q, err)) > 0) {
        if (read_port(&q, arena, &ret[n], err) < 0)
            return -1;
        n++;
    }
    return rc < 0 ? -1 : n;
}
