/* SPDX-License-Identifier: Apache-2.0 */
/* late_start - loaded by LD_PRELOAD: takes the first pthread key, and lets main() begin late. */
#include <pthread.h>
#include <time.h>

__attribute__((constructor)) static void late_start(void)
{
	struct timespec begin, now;
	pthread_key_t key;

	pthread_key_create(&key, NULL);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec - begin.tv_sec < 2);
}
