// Lifecycles creates, reads, lists, changes and deletes Azure objects with the Azure SDK for Go. It prints one
// JSON object for each step. The files of conformance/lifecycles list the steps with their expected outcomes.
//
// The clients are unmodified: only HTTPS_PROXY and SSL_CERT_FILE direct their requests to the local Azure.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// inputs is the object that the conformance suite writes to standard input.
type inputs struct {
	Tenant       string `json:"tenant"`
	Client       string `json:"client"`
	ClientSecret string `json:"client_secret"`
	ObjectID     string `json:"object_id"`
	Subscription string `json:"subscription"`
	Vault        string `json:"vault"`
}

// lifecycle has the parts that all lifecycles need.
type lifecycle struct {
	inputs
	ctx        context.Context
	credential *azidentity.ClientSecretCredential
	steps      *steps
}

var lifecycles = map[string]func(*lifecycle) error{
	"certificates": runCertificates,
	"clusters":     runClusters,
	"dns":          runDNS,
	"identities":   runIdentities,
	"keys":         runKeys,
	"network":      runNetwork,
	"private-dns":  runPrivateDNS,
	"resources":    runResources,
	"roles":        runRoles,
	"secrets":      runSecrets,
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "lifecycles:", err)
		os.Exit(1)
	}
}

func run() error {
	var in inputs
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: lifecycles lifecycle:NAME < inputs.json")
	}
	name := strings.TrimPrefix(os.Args[1], "lifecycle:")
	runLifecycle, known := lifecycles[name]
	if !known {
		return fmt.Errorf("unknown lifecycle %q", name)
	}
	credential, err := azidentity.NewClientSecretCredential(in.Tenant, in.Client, in.ClientSecret, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	steps := &steps{output: json.NewEncoder(os.Stdout)}
	err = runLifecycle(&lifecycle{inputs: in, ctx: ctx, credential: credential, steps: steps})
	if steps.failed != nil {
		return steps.failed
	}
	return err
}
