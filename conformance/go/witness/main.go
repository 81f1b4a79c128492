// Witness opens a mounted credential file with unmodified msi-dataplane and prints one JSON object
// per line: the certificate of the library's tokens when it changes, and the responses of ARM to a
// call that is permitted and to one that is not. With -watch it requests a token every few
// milliseconds until it is interrupted, so that a reload of the library appears immediately.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/Azure/msi-dataplane/pkg/dataplane"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"lanyard.dev/conformance/assertion"
)

// scope is the scope that the ARM clients for Go request, with their double slash.
const scope = "https://management.core.windows.net//.default"

type reporter struct {
	mutex   sync.Mutex
	encoder *json.Encoder
	last    string
}

type event struct {
	Kind       string `json:"event"`
	Thumbprint string `json:"thumbprint,omitempty"`
	Call       string `json:"call,omitempty"`
	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message,omitempty"`
}

func (r *reporter) write(e event) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// Standard output closes when the conformance suite ends.
	if err := r.encoder.Encode(e); err != nil {
		os.Exit(1)
	}
}

// reportCertificate reports the certificate of a token if the previous token had another one.
func (r *reporter) reportCertificate(thumbprint string) {
	r.mutex.Lock()
	changed := r.last != thumbprint
	r.last = thumbprint
	r.mutex.Unlock()
	if changed {
		r.write(event{Kind: "certificate", Thumbprint: thumbprint})
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "witness:", err)
		os.Exit(1)
	}
}

func run() error {
	file := flag.String("file", "", "the mounted credential file")
	granted := flag.String("granted", "", "path and api-version of an ARM resource that the identity may read")
	refused := flag.String("refused", "", "path and api-version of an ARM resource that the identity may not read")
	watch := flag.Bool("watch", false, "run until interrupted and report every rotation")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	out := &reporter{encoder: json.NewEncoder(os.Stdout)}
	logger := errorLogger(out)
	credential, err := dataplane.NewUserAssignedIdentityCredential(ctx, *file,
		dataplane.WithLogger(&logger),
		dataplane.WithClientOpts(azcore.ClientOptions{
			Cloud:           cloud.AzurePublic,
			PerCallPolicies: []policy.Policy{&assertion.Observer{OnToken: out.reportCertificate}},
		}))
	if err != nil {
		return fmt.Errorf("open %s: %w", *file, err)
	}
	out.write(event{Kind: "attached"})

	for name, target := range map[string]string{"granted": *granted, "refused": *refused} {
		if target != "" {
			if err := readResource(ctx, credential, name, target, out); err != nil {
				return err
			}
		}
	}
	if *watch {
		return requestTokensUntilDone(ctx, credential, out)
	}
	_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	return err
}

// readResource reads a resource with the generic client of armresources and reports the response of ARM.
func readResource(
	ctx context.Context, credential azcore.TokenCredential, name, target string, out *reporter,
) error {
	path, version, found := strings.Cut(target, "?api-version=")
	if !found {
		return fmt.Errorf("%s: no ?api-version= in %s", name, target)
	}
	// The path contains the subscription, but NewClient requires one as well.
	client, err := armresources.NewClient("unused", credential, &arm.ClientOptions{})
	if err != nil {
		return err
	}
	result := event{Kind: "arm", Call: name, Status: http.StatusOK}
	if _, err = client.GetByID(ctx, path, version, nil); err != nil {
		var response *azcore.ResponseError
		if !errors.As(err, &response) {
			return fmt.Errorf("%s: read %s: %w", name, path, err)
		}
		result.Status, result.Code = response.StatusCode, response.ErrorCode
	}
	out.write(result)
	return nil
}

// requestTokensUntilDone requests a token every few milliseconds. A cached token takes microseconds. A
// reload empties the library's cache, so the next call requests a token from Entra with the new key.
func requestTokensUntilDone(ctx context.Context, credential azcore.TokenCredential, out *reporter) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		if err != nil && ctx.Err() == nil {
			out.write(event{Kind: "refused", Message: err.Error()})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// errorLogger reports the errors that the library logs, but not its messages about its start and end.
// The library does not log a successful reload.
func errorLogger(out *reporter) logr.Logger {
	return funcr.New(func(_, message string) {
		if !strings.HasPrefix(message, `"level"=`) {
			out.write(event{Kind: "log", Message: message})
		}
	}, funcr.Options{})
}
