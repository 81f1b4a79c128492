// Drills runs the Azure SDK for Go against a local Azure with long-running operations and throttled
// requests.
//
// Usage: drills CASE < inputs.json
//
// Standard input is a JSON object with the credentials of the test clients. Standard output is the JSON
// object {"problems": [...]}, which is empty if the client behaved as on Azure.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"lanyard.dev/conformance/internal/program"
)

const (
	apiVersion = "2023-11-01"
	group      = "drill-go"
)

type inputs struct {
	Tenant       string `json:"tenant"`
	Subscription string `json:"subscription"`
	Owner        struct {
		ClientID string `json:"client_id"`
		Secret   string `json:"secret"`
	} `json:"owner"`
}

type outputs struct {
	Problems []string `json:"problems"`
}

type runner struct {
	inputs   inputs
	groups   *armresources.ResourceGroupsClient
	client   *armresources.Client
	problems []string
}

// control sends a request to the control API, without a proxy.
func control(method, path string, body any) (map[string]any, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	url := os.Getenv("LANYARD_AZURE_CONTROL") + "/" + path
	request, err := http.NewRequest(method, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("x-lanyard-control", "1")
	direct := &http.Client{Transport: &http.Transport{}}
	response, err := direct.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	var reply map[string]any
	if len(text) > 0 {
		err = json.Unmarshal(text, &reply)
	}
	return reply, err
}

// withOperations calls run while long-running operations of network security groups end as the rule says.
func withOperations(rule map[string]any, run func() error) (err error) {
	change := func(rules any) error {
		body := map[string]any{"resourceManager": map[string]any{"longRunning": rules}}
		_, err := control(http.MethodPatch, "settings", body)
		return err
	}
	rule["resourceType"] = "Microsoft.Network/networkSecurityGroups"
	if err := change([]any{rule}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, change(nil)) }()
	return run()
}

// withFault calls run while the local Azure injects a fault.
func withFault(rule map[string]any, run func() error) (err error) {
	if _, err := control(http.MethodPost, "faults", rule); err != nil {
		return err
	}
	defer func() {
		_, deleteErr := control(http.MethodDelete, fmt.Sprintf("faults/%s", rule["name"]), nil)
		err = errors.Join(err, deleteErr)
	}()
	return run()
}

func (r *runner) expect(what string, found, expected any) {
	if found != expected {
		r.problems = append(r.problems, fmt.Sprintf("%s: expected %v, found %v", what, expected, found))
	}
}

func (r *runner) resource(name string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Network/networkSecurityGroups/%s",
		r.inputs.Subscription, group, name)
}

// create creates a network security group, and polls until its operation ends.
func (r *runner) create(ctx context.Context, name string) (armresources.GenericResource, error) {
	body := armresources.GenericResource{Location: to.Ptr("westeurope"), Properties: map[string]any{}}
	poller, err := r.client.BeginCreateOrUpdateByID(ctx, r.resource(name), apiVersion, body, nil)
	if err != nil {
		return armresources.GenericResource{}, err
	}
	result, err := poller.PollUntilDone(ctx, nil)
	return result.GenericResource, err
}

func errorCode(err error) string {
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		return response.ErrorCode
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// longRunningOperations creates resources whose operations succeed, fail and lose their status.
func (r *runner) longRunningOperations(ctx context.Context) error {
	for _, style := range []string{"async-operation", "location", "body"} {
		err := withOperations(map[string]any{"polls": 3, "style": style}, func() error {
			created, err := r.create(ctx, "nsg-"+style)
			if err != nil {
				return fmt.Errorf("%s: %w", style, err)
			}
			properties, _ := created.Properties.(map[string]any)
			r.expect("provisioning state "+style, properties["provisioningState"], "Succeeded")
			return nil
		})
		if err != nil {
			return err
		}
	}
	failed := map[string]any{"status": "Failed", "code": "OverconstrainedAllocation", "message": "No capacity."}
	err := withOperations(map[string]any{"polls": 2, "outcome": failed}, func() error {
		_, err := r.create(ctx, "nsg-failed")
		r.expect("code of the failed operation", errorCode(err), "OverconstrainedAllocation")
		return nil
	})
	if err != nil {
		return err
	}
	return withOperations(map[string]any{"polls": 3, "expiresAfterPolls": 1}, func() error {
		_, err := r.create(ctx, "nsg-expired")
		r.expect("code of the expired operation", errorCode(err), "OperationNotFound")
		return nil
	})
}

// throttled reads a resource group while Azure Resource Manager throttles.
func (r *runner) throttled(ctx context.Context) error {
	for _, header := range []string{"retryAfter", "retryAfterMs"} {
		wait := map[string]int{"retryAfter": 1, "retryAfterMs": 300}[header]
		rule := map[string]any{
			"name": "go-throttled", "service": "arm", "method": "GET", "times": 2,
			"effect": map[string]any{"type": "throttle", header: wait},
		}
		started := time.Now()
		err := withFault(rule, func() error {
			_, err := r.groups.Get(ctx, group, nil)
			return err
		})
		if err != nil {
			return err
		}
		least := map[string]time.Duration{"retryAfter": 2 * time.Second, "retryAfterMs": 600 * time.Millisecond}[header]
		elapsed := time.Since(started)
		r.expect("the client waits as "+header+" says", elapsed >= least && elapsed < least+3*time.Second, true)
	}
	return nil
}

// certificates connects to Azure Resource Manager while its certificate is not valid.
func (r *runner) certificates(ctx context.Context) error {
	for _, problem := range []string{"expired", "unknown-authority"} {
		rule := map[string]any{
			"name": "go-certificate", "host": "management.azure.com",
			"effect": map[string]any{"type": "certificate", "problem": problem},
		}
		err := withFault(rule, func() error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://management.azure.com/", nil)
			if err != nil {
				return err
			}
			// A transport of its own, because open connections stay usable.
			response, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(request)
			if err == nil {
				err = response.Body.Close()
			}
			r.expect("problem with the certificate", certificateProblem(err), problem)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// certificateProblem names the reason why a server certificate was rejected, as a fault does. Any other error
// is returned as text.
func certificateProblem(err error) string {
	var verification *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	var authority x509.UnknownAuthorityError
	switch {
	case err == nil:
		return "none"
	case !errors.As(err, &verification):
		return err.Error()
	case errors.As(verification.Err, &invalid) && invalid.Reason == x509.Expired:
		return "expired"
	case errors.As(verification.Err, &authority):
		return "unknown-authority"
	default:
		return verification.Error()
	}
}

func (r *runner) connect(ctx context.Context) error {
	owner := r.inputs.Owner
	credential, err := azidentity.NewClientSecretCredential(r.inputs.Tenant, owner.ClientID, owner.Secret, nil)
	if err != nil {
		return err
	}
	if r.groups, err = armresources.NewResourceGroupsClient(r.inputs.Subscription, credential, nil); err != nil {
		return err
	}
	if r.client, err = armresources.NewClient(r.inputs.Subscription, credential, nil); err != nil {
		return err
	}
	location := armresources.ResourceGroup{Location: to.Ptr("westeurope")}
	_, err = r.groups.CreateOrUpdate(ctx, group, location, nil)
	return err
}

func run(ctx context.Context, name string, in inputs) (outputs, error) {
	r := &runner{inputs: in, problems: []string{}}
	cases := map[string]func(context.Context) error{
		"long-running-operations": r.longRunningOperations,
		"throttled":               r.throttled,
		"certificates":            r.certificates,
	}
	selected, ok := cases[name]
	if !ok {
		return outputs{}, fmt.Errorf("unknown case %q", name)
	}
	if err := r.connect(ctx); err != nil {
		return outputs{}, err
	}
	if err := selected(ctx); err != nil {
		return outputs{}, err
	}
	return outputs{Problems: r.problems}, nil
}

func main() {
	program.Main(time.Minute, run)
}
