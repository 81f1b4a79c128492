// The witness holds a msi-dataplane credential on a mounted file and reports, one JSON object per
// line, what the unmodified library does: the certificate of every token that it obtains, and how
// ARM answers two calls, one that is granted and one that is not. With -watch it stays and asks for a token all the time, as a busy
// component would, so a reload shows as soon as the library has noticed it.
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

// The scope that ARM clients for Go ask for; the double slash is theirs.
const scope = "https://management.core.windows.net//.default"

type report struct {
	mutex   sync.Mutex
	encoder *json.Encoder
	last    string
}

type line struct {
	Event      string `json:"event"`
	Thumbprint string `json:"thumbprint,omitempty"`
	Call       string `json:"call,omitempty"`
	Status     int    `json:"status,omitempty"`
	Code       string `json:"code,omitempty"`
	Message    string `json:"message,omitempty"`
}

func (r *report) write(l line) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	// Standard output is gone when the judge is gone.
	if err := r.encoder.Encode(l); err != nil {
		os.Exit(1)
	}
}

// granted reports a certificate when it is not the one of the token before.
func (r *report) granted(thumbprint string) {
	r.mutex.Lock()
	changed := r.last != thumbprint
	r.last = thumbprint
	r.mutex.Unlock()
	if changed {
		r.write(line{Event: "certificate", Thumbprint: thumbprint})
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
	granted := flag.String("granted", "", "path and api-version of an ARM resource that may be read")
	refused := flag.String("refused", "", "path and api-version of one that may not")
	watch := flag.Bool("watch", false, "stay until interrupted and report every rotation")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	out := &report{encoder: json.NewEncoder(os.Stdout)}
	logger := librarysLogger(out)
	credential, err := dataplane.NewUserAssignedIdentityCredential(ctx, *file,
		dataplane.WithLogger(&logger),
		dataplane.WithClientOpts(azcore.ClientOptions{
			Cloud:           cloud.AzurePublic,
			PerCallPolicies: []policy.Policy{&assertion.Observer{Granted: out.granted}},
		}))
	if err != nil {
		return fmt.Errorf("open %s: %w", *file, err)
	}
	out.write(line{Event: "attached"})

	for name, target := range map[string]string{"granted": *granted, "refused": *refused} {
		if target != "" {
			if err := read(ctx, credential, name, target, out); err != nil {
				return err
			}
		}
	}
	if *watch {
		return askUntilDone(ctx, credential, out)
	}
	_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
	return err
}

// read makes one call with the generic client of armresources and reports how ARM answered.
func read(
	ctx context.Context, credential azcore.TokenCredential, name, target string, out *report,
) error {
	path, version, found := strings.Cut(target, "?api-version=")
	if !found {
		return fmt.Errorf("%s: no ?api-version= in %s", name, target)
	}
	// The subscription stands in the path; the client wants one all the same.
	client, err := armresources.NewClient("unused", credential, &arm.ClientOptions{})
	if err != nil {
		return err
	}
	answer := line{Event: "arm", Call: name, Status: http.StatusOK}
	if _, err = client.GetByID(ctx, path, version, nil); err != nil {
		var response *azcore.ResponseError
		if !errors.As(err, &response) {
			return fmt.Errorf("%s: read %s: %w", name, path, err)
		}
		answer.Status, answer.Code = response.StatusCode, response.ErrorCode
	}
	out.write(answer)
	return nil
}

// askUntilDone asks every few milliseconds: a token that is cached costs microseconds, and a
// reload empties the library's cache, so the next question reaches Entra with the new key.
func askUntilDone(ctx context.Context, credential azcore.TokenCredential, out *report) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{scope}})
		if err != nil && ctx.Err() == nil {
			out.write(line{Event: "refused", Message: err.Error()})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// librarysLogger passes on what the library calls an error; the rest is about its own beginning
// and end. A reload that went well is not logged at all.
func librarysLogger(out *report) logr.Logger {
	return funcr.New(func(_, message string) {
		if !strings.HasPrefix(message, `"level"=`) {
			out.write(line{Event: "log", Message: message})
		}
	}, funcr.Options{})
}
