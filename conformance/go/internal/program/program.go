// Package program has the parts that the client programs share. A program runs one case: its first argument is
// the name of the case, standard input is a JSON object with the inputs, and standard output is JSON.
package program

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// Main runs a case and prints its result as one JSON object. It prints an error on standard error, and exits with
// status 1. A case may take the given time.
func Main[Inputs, Outputs any](limit time.Duration, run func(context.Context, string, Inputs) (Outputs, error)) {
	if err := runCase(limit, run); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func runCase[Inputs, Outputs any](
	limit time.Duration, run func(context.Context, string, Inputs) (Outputs, error),
) error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: %s CASE < inputs.json", filepath.Base(os.Args[0]))
	}
	var inputs Inputs
	if err := json.NewDecoder(os.Stdin).Decode(&inputs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	outputs, err := run(ctx, os.Args[1], inputs)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(outputs)
}

// CertificateCredential creates a credential from a PEM file with certificates and their key. The options may be
// nil.
func CertificateCredential(
	tenant, client, file string, options *azidentity.ClientCertificateCredentialOptions,
) (*azidentity.ClientCertificateCredential, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	chain, key, err := azidentity.ParseCertificates(content, nil)
	if err != nil {
		return nil, err
	}
	return azidentity.NewClientCertificateCredential(tenant, client, chain, key, options)
}

// Value returns the referenced value, or the zero value for nil.
func Value[T any](pointer *T) T {
	if pointer == nil {
		var zero T
		return zero
	}
	return *pointer
}
