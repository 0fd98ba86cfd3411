/* SPDX-License-Identifier: Apache-2.0 */
/* flight_groups.h - inside flightrec/: the last numbers of each group of a dump. */
#ifndef LG_IMPORT_FLIGHTREC_FLIGHT_GROUPS_H
#define LG_IMPORT_FLIGHTREC_FLIGHT_GROUPS_H
#include "import/value/value.h"
#include "store/builder.h"

/* Facts of prc: flight.last.NAME = last collective enqueued, started, completed. 0 or LG_E_NOMEM. */
int lg_flight_groups(struct lg_builder *b, lg_prc prc, const struct lg_doc *d) LG_MUST_CHECK;

#endif /* LG_IMPORT_FLIGHTREC_FLIGHT_GROUPS_H */
