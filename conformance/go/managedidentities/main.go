// Managedidentities is a resource provider that uses unmodified msi-dataplane: it obtains credentials of
// managed identities from the data plane, signs in with them, and stores them in Key Vault. It reads one
// JSON object from standard input and prints one: the result of the case in the first argument.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
	"github.com/Azure/msi-dataplane/pkg/dataplane"

	"lanyard.dev/conformance/internal/program"
)

const (
	audience = "https://identity.azure.net"
	armScope = "https://management.azure.com/.default"
)

type inputs struct {
	// Tenant, Client, and either ClientSecret or Certificate sign the resource provider in.
	Tenant       string `json:"tenant"`
	Client       string `json:"client"`
	ClientSecret string `json:"client_secret"`
	Certificate  string `json:"certificate"`
	// IdentityURL is the header x-ms-identity-url, or the client_secret_url of a credential.
	IdentityURL string `json:"identity_url"`
	// IdentityID is the ARM id of a user-assigned identity.
	IdentityID string `json:"identity_id"`
	// Call is the URL of a request to Azure Resource Manager as the identity.
	Call string `json:"call"`
	// Vault is the URL of the vault that stores the credential.
	Vault string `json:"vault"`
}

type outputs struct {
	ClientID   string `json:"client_id,omitempty"`
	ResourceID string `json:"resource_id,omitempty"`
	NotBefore  string `json:"not_before,omitempty"`
	NotAfter   string `json:"not_after,omitempty"`
	RenewAfter string `json:"renew_after,omitempty"`
	// CannotRenewAfter is the time at which the data plane ceases to renew the credential.
	CannotRenewAfter string `json:"cannot_renew_after,omitempty"`
	// SecretURL is the client_secret_url of the credential.
	SecretURL string `json:"secret_url,omitempty"`
	// ArmStatus is the status of the request to Azure Resource Manager.
	ArmStatus int `json:"arm_status,omitempty"`
	// Stored is the secret that was read back from the vault.
	Stored *storedSecret `json:"stored,omitempty"`
	// RefusedBy is the service that returned an error, with its status and its code.
	RefusedBy string `json:"refused_by,omitempty"`
	Status    int    `json:"status,omitempty"`
	Code      string `json:"code,omitempty"`
}

type storedSecret struct {
	Name             string `json:"name"`
	RenewAfter       string `json:"renew_after"`
	CannotRenewAfter string `json:"cannot_renew_after"`
	Expires          string `json:"expires"`
	ClientID         string `json:"client_id"`
}

func main() {
	program.Main(30*time.Second, run)
}

func run(ctx context.Context, name string, in inputs) (outputs, error) {
	provider, err := providerCredential(in)
	if err != nil {
		return outputs{}, err
	}
	factory := dataplane.NewClientFactory(provider, audience, nil)
	client, err := factory.NewClient(in.IdentityURL)
	if err != nil {
		return outputs{}, err
	}
	switch name {
	case "user-assigned":
		issued, err := client.GetUserAssignedIdentitiesCredentials(ctx,
			dataplane.UserAssignedIdentitiesRequest{IdentityIDs: []string{in.IdentityID}})
		if err != nil {
			return clientError("data plane", err)
		}
		return useCredential(ctx, in, provider, issued)
	case "renewal":
		issued, err := client.GetSystemAssignedIdentityCredentials(ctx)
		if err != nil {
			return clientError("data plane", err)
		}
		return useCredential(ctx, in, provider, issued)
	default:
		return outputs{}, fmt.Errorf("unknown case %q", name)
	}
}

func providerCredential(in inputs) (azcore.TokenCredential, error) {
	if in.ClientSecret != "" {
		return azidentity.NewClientSecretCredential(in.Tenant, in.Client, in.ClientSecret, nil)
	}
	return program.CertificateCredential(in.Tenant, in.Client, in.Certificate, nil)
}

// useCredential signs in with the one issued credential, sends a request to Azure Resource Manager, and
// stores the credential.
func useCredential(
	ctx context.Context, in inputs, provider azcore.TokenCredential,
	issued *dataplane.ManagedIdentityCredentials,
) (outputs, error) {
	if len(issued.ExplicitIdentities) != 1 {
		return outputs{}, fmt.Errorf("%d credentials", len(issued.ExplicitIdentities))
	}
	identity := issued.ExplicitIdentities[0]
	out := outputs{
		ClientID:         program.Value(identity.ClientID),
		ResourceID:       program.Value(identity.ResourceID),
		NotBefore:        program.Value(identity.NotBefore),
		NotAfter:         program.Value(identity.NotAfter),
		RenewAfter:       program.Value(identity.RenewAfter),
		CannotRenewAfter: program.Value(identity.CannotRenewAfter),
		SecretURL:        program.Value(identity.ClientSecretURL),
	}
	credential, err := dataplane.GetCredential(azcore.ClientOptions{}, identity)
	if err != nil {
		return outputs{}, err
	}
	token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{armScope}})
	if err != nil {
		refused, err := clientError("token service", err)
		out.RefusedBy, out.Status, out.Code = refused.RefusedBy, refused.Status, refused.Code
		return out, err
	}
	if in.Call != "" {
		out.ArmStatus, err = callARM(ctx, in.Call, token.Token)
		if err != nil {
			return outputs{}, err
		}
	}
	if in.Vault != "" {
		out.Stored, err = store(ctx, in.Vault, provider, identity)
	}
	return out, err
}

func callARM(ctx context.Context, url, token string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}

// store writes the credential in the format of msi-dataplane, and reads it back.
func store(
	ctx context.Context, vault string, provider azcore.TokenCredential,
	identity dataplane.UserAssignedIdentityCredentials,
) (*storedSecret, error) {
	client, err := azsecrets.NewClient(vault, provider, nil)
	if err != nil {
		return nil, err
	}
	name, parameters, err := dataplane.FormatUserAssignedIdentityCredentialsForStorage(
		"conformance", identity)
	if err != nil {
		return nil, err
	}
	if _, err := client.SetSecret(ctx, name, parameters, nil); err != nil {
		return nil, err
	}
	read, err := client.GetSecret(ctx, name, "", nil)
	if err != nil {
		return nil, err
	}
	var document dataplane.UserAssignedIdentityCredentials
	if err := json.Unmarshal([]byte(program.Value(read.Value)), &document); err != nil {
		return nil, err
	}
	stored := &storedSecret{
		Name:             name,
		RenewAfter:       program.Value(read.Tags[dataplane.RenewAfterKeyVaultTag]),
		CannotRenewAfter: program.Value(read.Tags[dataplane.CannotRenewAfterKeyVaultTag]),
		ClientID:         program.Value(document.ClientID),
	}
	if read.Attributes != nil && read.Attributes.Expires != nil {
		stored.Expires = read.Attributes.Expires.UTC().Format(time.RFC3339)
	}
	return stored, nil
}

var aadstsCode = regexp.MustCompile(`AADSTS\d+`)

// clientError describes an error response of a service; any other error is returned.
func clientError(service string, err error) (outputs, error) {
	out := outputs{RefusedBy: service}
	var response *azcore.ResponseError
	var authentication *azidentity.AuthenticationFailedError
	switch {
	case errors.As(err, &authentication) && authentication.RawResponse != nil:
		body, readError := runtime.Payload(authentication.RawResponse)
		if readError != nil {
			return outputs{}, readError
		}
		out.Status = authentication.RawResponse.StatusCode
		out.Code = aadstsCode.FindString(string(body))
	case errors.As(err, &response):
		out.Status, out.Code = response.StatusCode, response.ErrorCode
	default:
		return outputs{}, err
	}
	return out, nil
}
