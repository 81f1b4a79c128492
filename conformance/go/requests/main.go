// Requests sends the requests of azidentity and azsecrets for given inputs. The conformance suite
// records them with a proxy and compares them with lanyard's requests, field by field. The output
// of this program is not compared.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"

	"lanyard.dev/conformance/internal/program"
)

// inputs is the object that the conformance suite writes to standard input.
type inputs struct {
	Tenant      string `json:"tenant"`
	Client      string `json:"client"`
	Certificate string `json:"certificate"`
	TokenFile   string `json:"token_file"`
	Scope       string `json:"scope"`
	Vault       string `json:"vault"`
	SecretName  string `json:"secret_name"`
}

// outputs is empty, because the suite compares only the requests.
type outputs struct{}

func main() {
	program.Main(20*time.Second, run)
}

func run(ctx context.Context, name string, in inputs) (outputs, error) {
	switch name {
	case "certificate":
		return outputs{}, requestToken(ctx, in, certificateCredential)
	case "federated":
		return outputs{}, requestToken(ctx, in, federatedCredential)
	case "managed-identity":
		return outputs{}, requestToken(ctx, in, managedIdentityCredential)
	case "secret":
		return outputs{}, readSecret(ctx, in)
	default:
		return outputs{}, fmt.Errorf("unknown case %q", name)
	}
}

func requestToken(
	ctx context.Context, in inputs, build func(inputs) (azcore.TokenCredential, error),
) error {
	credential, err := build(in)
	if err != nil {
		return err
	}
	_, err = credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{in.Scope}})
	return err
}

// certificateCredential uses the settings of msi-dataplane: it sends the certificate chain and, because
// the authority may be regional, disables instance discovery.
func certificateCredential(in inputs) (azcore.TokenCredential, error) {
	options := &azidentity.ClientCertificateCredentialOptions{
		SendCertificateChain:     true,
		DisableInstanceDiscovery: true,
	}
	return program.CertificateCredential(in.Tenant, in.Client, in.Certificate, options)
}

func federatedCredential(in inputs) (azcore.TokenCredential, error) {
	return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientID:                 in.Client,
		TenantID:                 in.Tenant,
		TokenFilePath:            in.TokenFile,
		DisableInstanceDiscovery: true,
	})
}

func managedIdentityCredential(in inputs) (azcore.TokenCredential, error) {
	return azidentity.NewManagedIdentityCredential(&azidentity.ManagedIdentityCredentialOptions{
		ID: azidentity.ClientID(in.Client),
	})
}

func readSecret(ctx context.Context, in inputs) error {
	credential, err := managedIdentityCredential(in)
	if err != nil {
		return err
	}
	client, err := azsecrets.NewClient(in.Vault, credential, nil)
	if err != nil {
		return err
	}
	response, err := client.GetSecret(ctx, in.SecretName, "", nil)
	if err != nil {
		return err
	}
	if response.Value == nil {
		return errors.New("the secret has no value")
	}
	return nil
}
