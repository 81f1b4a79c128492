// Measures azidentity, the library that msi-dataplane wraps.
//
// Writes a JSON array of measurements to standard output, in the format of benches/credential. If the arguments are
// the paths of PEM files, it also measures the steps with which msi-dataplane loads a new certificate.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

const subject = "azidentity 1.15.0"

type measurement struct {
	Subject string  `json:"subject"`
	Metric  string  `json:"metric"`
	Unit    string  `json:"unit"`
	Value   float64 `json:"value"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(pemFiles []string) error {
	benchmarks := []struct {
		name    string
		measure func() ([]measurement, error)
	}{
		{"cached tokens", measureCachedTokens},
		{"threads", measureThreads},
		{"callers on a cold scope", measureColdScope},
		{"callers of a service that returns errors", measureRejectedRequests},
		{"reload", func() ([]measurement, error) { return measureReload(pemFiles) }},
	}
	var all []measurement
	for _, benchmark := range benchmarks {
		fmt.Fprintln(os.Stderr, "credential-go:", benchmark.name)
		measured, err := benchmark.measure()
		if err != nil {
			return fmt.Errorf("%s: %w", benchmark.name, err)
		}
		all = append(all, measured...)
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func newMeasurement(metric, unit string, value float64) measurement {
	return measurement{Subject: subject, Metric: metric, Unit: unit, Value: value}
}
