/* SPDX-License-Identifier: Apache-2.0 */
/*
 * convert.h - a trace as a file that other tools open. One function a format; all stream into o
 * and leave its sticky error to lg_out_close().
 */
#ifndef LG_REPORT_CONVERT_H
#define LG_REPORT_CONVERT_H
#include "base/out.h"
#include "report/timeline.h"

/* Trace Event Format JSON for chrome://tracing, Perfetto, Speedscope. Times are microseconds
 * from the trace's first row with exactly three decimals (whole nanoseconds); the clock's value
 * there is otherData.start_ns. verdict may be NULL. */
int lg_chrome_write(const struct lg_trace *t, const struct lg_verdict *v, const struct lg_window *w,
		    struct lg_out *o, struct lg_error *err) LG_MUST_CHECK;

/* Perfetto protobuf: TrackEvents on the trace's own clock (CLOCK_MONOTONIC), StackSamples. */
int lg_perfetto_write(const struct lg_trace *t, const struct lg_verdict *v,
		      const struct lg_window *w, struct lg_out *o, struct lg_error *err) LG_MUST_CHECK;

/* "process;outermost;...;innermost COUNT" a line, for flamegraph.pl, speedscope, inferno. */
int lg_folded_write(const struct lg_trace *t, const struct lg_window *w, struct lg_out *o,
		    struct lg_error *err) LG_MUST_CHECK;

/* Speedscope's own format: for each event a profile of everything, then one a thread. */
int lg_speedscope_write(const struct lg_trace *t, const struct lg_window *w, struct lg_out *o,
			struct lg_error *err) LG_MUST_CHECK;

/* pprof's profile.proto; o compresses. */
int lg_pprof_write(const struct lg_trace *t, const struct lg_window *w, struct lg_out *o,
		   struct lg_error *err) LG_MUST_CHECK;

/*
 * The rows of t that touch the window, as a trace that borrows t's dictionaries and strings
 * (free with lg_window_trace_free(), before t). Rows keep their full length.
 */
int lg_window_trace(struct lg_trace **ret, const struct lg_trace *t, const struct lg_window *w,
		    struct lg_error *err) LG_MUST_CHECK;
void lg_window_trace_free(struct lg_trace *part);

#endif /* LG_REPORT_CONVERT_H */
