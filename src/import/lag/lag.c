/* SPDX-License-Identifier: Apache-2.0 */
#include "import/lag/lag.h"

#include "store/lag_read.h"

static int sniff(const struct lg_head *h)
{
	return lg_lag_sniff(h->p, h->n);
}

const struct lg_importer lg_import_lag = {
	.name = "laggard",
	.summary = "recording of laggard (.lag)",
	.sniff = sniff,
	.run = lg_lag_read,
};
