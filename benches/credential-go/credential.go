package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

const (
	tenant = "11111111-1111-4111-8111-111111111111"
	client = "22222222-2222-4222-8222-222222222222"
)

func clientOptions(service *tokenService) azcore.ClientOptions {
	return azcore.ClientOptions{Transport: service}
}

// open makes the credential that needs least: no key is parsed, nothing is signed.
func open(service *tokenService) (azcore.TokenCredential, error) {
	return azidentity.NewClientSecretCredential(tenant, client, "secret", &azidentity.ClientSecretCredentialOptions{
		ClientOptions:            clientOptions(service),
		DisableInstanceDiscovery: true,
	})
}

// openHolding makes a credential that holds tokens for this many scopes.
func openHolding(scopes int) (azcore.TokenCredential, *tokenService, error) {
	service := &tokenService{}
	credential, err := open(service)
	if err != nil {
		return nil, nil, err
	}
	for number := range scopes {
		if err := take(credential, scope(number)); err != nil {
			return nil, nil, err
		}
	}
	return credential, service, nil
}

func take(credential azcore.TokenCredential, scope string) error {
	_, err := credential.GetToken(context.Background(), policy.TokenRequestOptions{Scopes: []string{scope}})
	return err
}

func scope(number int) string {
	return fmt.Sprintf("https://service-%04d.example.net/.default", number)
}

func median(samples []float64) float64 {
	slices.Sort(samples)
	return samples[(len(samples)-1)/2]
}
