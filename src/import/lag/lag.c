/* SPDX-License-Identifier: Apache-2.0 */
#include "import/lag/lag.h"

#include "store/lag_read.h"

const struct lg_importer lg_import_lag = {
	.name = "laggard",
	.summary = "recording of laggard (.lag)",
	.sniff = lg_lag_sniff,
	.run = lg_lag_read,
};
