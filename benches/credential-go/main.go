// The Go side of the credential benchmark: azidentity, which msi-dataplane wraps.
//
// Writes one JSON array of measurements to standard output, in the form that the Rust side writes.
// With the paths of files in PEM as arguments it also measures what msi-dataplane does to take a new certificate.
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
	parts := []struct {
		name    string
		measure func() ([]measurement, error)
	}{
		{"cached tokens", measureCached},
		{"threads", measureThreads},
		{"callers on a cold scope", measureCold},
		{"callers while the service refuses", measureRefused},
		{"reload", func() ([]measurement, error) { return measureReload(pemFiles) }},
	}
	var all []measurement
	for _, part := range parts {
		fmt.Fprintln(os.Stderr, "credential-go:", part.name)
		measured, err := part.measure()
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		all = append(all, measured...)
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func row(metric, unit string, value float64) measurement {
	return measurement{Subject: subject, Metric: metric, Unit: unit, Value: value}
}
