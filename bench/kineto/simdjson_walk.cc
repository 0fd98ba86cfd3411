// SPDX-License-Identifier: Apache-2.0
// simdjson_walk.cc - the limit: read a trace, visit name, cat, ph, ts, dur, pid, tid of each event.
#include <cstdint>
#include <cstdio>
#include <simdjson.h>

using namespace simdjson;

int main(int argc, char **argv)
{
	size_t events = 0, bytes = 0;
	double sum = 0;

	if (argc != 2)
		return 2;
	padded_string text = padded_string::load(argv[1]);
	ondemand::parser parser;
	auto doc = parser.iterate(text);
	for (auto event : doc["traceEvents"]) {
		for (auto field : ondemand::object(event.get_object())) {
			std::string_view key = field.unescaped_key(), s;
			double real;
			int64_t whole;

			if (key == "name" || key == "cat" || key == "ph") {
				if (!field.value().get_string().get(s))
					bytes += s.size();
			} else if (key == "ts" || key == "dur") {
				if (!field.value().get_double().get(real))
					sum += real;
			} else if (key == "pid" || key == "tid") {
				if (!field.value().get_int64().get(whole))
					sum += (double)whole;
			}
		}
		events++;
	}
	printf("%zu events, %zu bytes, %g\n", events, bytes, sum);
	return 0;
}
