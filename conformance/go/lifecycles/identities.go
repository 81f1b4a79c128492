package main

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
)

func identityFacts(it armmsi.Identity) facts {
	return facts{
		"id":           it.ID,
		"location":     it.Location,
		"tags":         it.Tags,
		"tenant":       it.Properties.TenantID,
		"client_id":    it.Properties.ClientID,
		"principal_id": it.Properties.PrincipalID,
	}
}

func runIdentities(l *lifecycle) error {
	const group, name = "sdk-identities", "workload"
	factory, err := armmsi.NewClientFactory(l.Subscription, l.credential, nil)
	if err != nil {
		return err
	}
	client := factory.NewUserAssignedIdentitiesClient()
	put := func(name string, tags map[string]*string) func() (armmsi.Identity, error) {
		return func() (armmsi.Identity, error) {
			identity := armmsi.Identity{Location: to.Ptr(location), Tags: tags}
			response, err := client.CreateOrUpdate(l.ctx, group, name, identity, nil)
			return response.Identity, err
		}
	}
	get := func(name string) func() (armmsi.Identity, error) {
		return func() (armmsi.Identity, error) {
			response, err := client.Get(l.ctx, group, name, nil)
			return response.Identity, err
		}
	}
	runStep(l.steps, "create an identity in a missing group", put(name, nil), identityFacts)
	deleteGroup, err := l.createGroup(group)
	if err != nil {
		return err
	}
	runStep(l.steps, "create an identity", put(name, tags("test")), identityFacts)
	setUp(l.steps, put("other", nil))
	runStep(l.steps, "get an identity", get(name), identityFacts)
	runStep(l.steps, "change the tags", func() (armmsi.Identity, error) {
		update := armmsi.IdentityUpdate{Tags: tags("production")}
		response, err := client.Update(l.ctx, group, name, update, nil)
		return response.Identity, err
	}, func(it armmsi.Identity) facts { return facts{"tags": it.Tags} })
	runStep(l.steps, "list the identities of the group", func() (page, error) {
		pager := client.NewListByResourceGroupPager(group, nil)
		return readPages(l.ctx, pager, func(it armmsi.UserAssignedIdentitiesClientListByResourceGroupResponse) []string {
			return namesOf(it.Value, func(it *armmsi.Identity) string { return *it.Name })
		})
	}, pageFacts)
	runFederatedCredentials(l, factory.NewFederatedIdentityCredentialsClient(), group, name)
	runStep(l.steps, "get a missing identity", get("missing"), identityFacts)
	runStep(l.steps, "delete an identity", func() (armmsi.UserAssignedIdentitiesClientDeleteResponse, error) {
		return client.Delete(l.ctx, group, name, nil)
	}, nothing)
	runStep(l.steps, "get a deleted identity", get(name), identityFacts)
	return deleteGroup()
}

func runFederatedCredentials(
	l *lifecycle, client *armmsi.FederatedIdentityCredentialsClient, group, identity string,
) {
	describe := func(it armmsi.FederatedIdentityCredential) facts {
		return facts{
			"id":        it.ID,
			"issuer":    it.Properties.Issuer,
			"subject":   it.Properties.Subject,
			"audiences": it.Properties.Audiences,
		}
	}
	create := func(name, subject string) func() (armmsi.FederatedIdentityCredential, error) {
		return func() (armmsi.FederatedIdentityCredential, error) {
			credential := armmsi.FederatedIdentityCredential{
				Properties: &armmsi.FederatedIdentityCredentialProperties{
					Issuer:    to.Ptr("https://issuer.example.org"),
					Subject:   to.Ptr("system:serviceaccount:app:" + subject),
					Audiences: []*string{to.Ptr("api://AzureADTokenExchange")},
				},
			}
			response, err := client.CreateOrUpdate(l.ctx, group, identity, name, credential, nil)
			return response.FederatedIdentityCredential, err
		}
	}
	runStep(l.steps, "create a federated credential", create("app", "app"), describe)
	runStep(l.steps, "create a federated credential with the same subject", create("copy", "app"), describe)
	setUp(l.steps, create("web", "web"))
	runStep(l.steps, "list the federated credentials", func() (page, error) {
		pager := client.NewListPager(group, identity, nil)
		return readPages(l.ctx, pager, func(it armmsi.FederatedIdentityCredentialsClientListResponse) []string {
			return namesOf(it.Value, func(it *armmsi.FederatedIdentityCredential) string { return *it.Name })
		})
	}, pageFacts)
	runStep(l.steps, "delete a federated credential", func() (armmsi.FederatedIdentityCredentialsClientDeleteResponse, error) {
		return client.Delete(l.ctx, group, identity, "app", nil)
	}, nothing)
	runStep(l.steps, "get a deleted federated credential", func() (armmsi.FederatedIdentityCredential, error) {
		response, err := client.Get(l.ctx, group, identity, "app", nil)
		return response.FederatedIdentityCredential, err
	}, describe)
}
