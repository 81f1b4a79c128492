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

// newCredential creates the cheapest credential of azidentity: it parses no key and signs nothing.
func newCredential(service *tokenService) (azcore.TokenCredential, error) {
	return azidentity.NewClientSecretCredential(tenant, client, "secret", &azidentity.ClientSecretCredentialOptions{
		ClientOptions:            clientOptions(service),
		DisableInstanceDiscovery: true,
	})
}

// openWithTokens creates a credential and fetches tokens for this number of scopes.
func openWithTokens(scopes int) (azcore.TokenCredential, *tokenService, error) {
	service := &tokenService{}
	credential, err := newCredential(service)
	if err != nil {
		return nil, nil, err
	}
	for number := range scopes {
		if err := requestToken(credential, scopeName(number)); err != nil {
			return nil, nil, err
		}
	}
	return credential, service, nil
}

func requestToken(credential azcore.TokenCredential, scope string) error {
	_, err := credential.GetToken(context.Background(), policy.TokenRequestOptions{Scopes: []string{scope}})
	return err
}

func scopeName(number int) string {
	return fmt.Sprintf("https://service-%04d.example.net/.default", number)
}

func median(samples []float64) float64 {
	slices.Sort(samples)
	return samples[(len(samples)-1)/2]
}
