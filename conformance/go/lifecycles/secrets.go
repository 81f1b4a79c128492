package main

import (
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azsecrets"
)

func secretFacts(it azsecrets.Secret) facts {
	properties := secretPropertyFacts(it)
	properties["value"] = it.Value
	return properties
}

func secretPropertyFacts(it azsecrets.Secret) facts {
	return facts{
		"name":           it.ID.Name(),
		"version":        it.ID.Version(),
		"content_type":   it.ContentType,
		"enabled":        it.Attributes.Enabled,
		"expires":        formatTime(it.Attributes.Expires),
		"tags":           it.Tags,
		"recovery_level": it.Attributes.RecoveryLevel,
	}
}

func formatTime(time *time.Time) any {
	if time == nil {
		return nil
	}
	return time.UTC().Format("2006-01-02T15:04:05-07:00")
}

func runSecrets(l *lifecycle) error {
	const name = "lifecycle"
	client, err := azsecrets.NewClient(l.Vault, l.credential, nil)
	if err != nil {
		return err
	}
	set := func(name, value string) (azsecrets.Secret, error) {
		parameters := azsecrets.SetSecretParameters{Value: to.Ptr(value)}
		if value == "first" {
			parameters.ContentType, parameters.Tags = to.Ptr("text/plain"), tags("test")
		}
		response, err := client.SetSecret(l.ctx, name, parameters, nil)
		return response.Secret, err
	}
	get := func(name, version string) func() (azsecrets.Secret, error) {
		return func() (azsecrets.Secret, error) {
			response, err := client.GetSecret(l.ctx, name, version, nil)
			return response.Secret, err
		}
	}
	setValue := func(value string) func() (azsecrets.Secret, error) {
		return func() (azsecrets.Secret, error) { return set(name, value) }
	}
	first := runStep(l.steps, "set a secret", setValue("first"), secretFacts)
	if first.ID == nil {
		return l.steps.failed
	}
	version := first.ID.Version()
	runStep(l.steps, "set a new version", setValue("second"), secretFacts)
	runStep(l.steps, "get the newest version", get(name, ""), secretFacts)
	runStep(l.steps, "get the first version", get(name, version), secretFacts)
	runStep(l.steps, "change the properties of the first version", func() (azsecrets.Secret, error) {
		expires := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
		parameters := azsecrets.UpdateSecretPropertiesParameters{
			SecretAttributes: &azsecrets.SecretAttributes{Enabled: to.Ptr(false), Expires: &expires},
			Tags:             tags("old"),
		}
		response, err := client.UpdateSecretProperties(l.ctx, name, version, parameters, nil)
		return response.Secret, err
	}, secretPropertyFacts)
	runStep(l.steps, "get a disabled version", get(name, version), secretFacts)
	runStep(l.steps, "get a missing secret", get("missing", ""), secretFacts)
	runStep(l.steps, "set a secret with an invalid name", func() (azsecrets.Secret, error) {
		return set("under_score", "value")
	}, secretFacts)
	runStep(l.steps, "list the versions", func() (page, error) {
		pager := client.NewListSecretPropertiesVersionsPager(name, nil)
		return readPages(l.ctx, pager, func(it azsecrets.ListSecretPropertiesVersionsResponse) []string {
			return namesOf(it.Value, func(it *azsecrets.SecretProperties) string { return it.ID.Name() })
		})
	}, pageFacts)
	runDeletedSecret(l, client, get(name, ""), setValue("third"))
	return nil
}

func runDeletedSecret(l *lifecycle, client *azsecrets.Client, get, set func() (azsecrets.Secret, error)) {
	const name = "lifecycle"
	remove := func() (azsecrets.DeletedSecret, error) {
		response, err := client.DeleteSecret(l.ctx, name, nil)
		return response.DeletedSecret, err
	}
	runStep(l.steps, "delete a secret", remove, func(it azsecrets.DeletedSecret) facts {
		return facts{
			"name":        it.ID.Name(),
			"recovery_id": it.RecoveryID,
			"days":        int(it.ScheduledPurgeDate.Sub(*it.DeletedDate).Hours() / 24),
		}
	})
	runStep(l.steps, "get a deleted secret", get, secretFacts)
	runStep(l.steps, "set a deleted secret", set, secretFacts)
	runStep(l.steps, "list the deleted secrets", func() (page, error) {
		pager := client.NewListDeletedSecretPropertiesPager(nil)
		return readPages(l.ctx, pager, func(it azsecrets.ListDeletedSecretPropertiesResponse) []string {
			return namesOf(it.Value, func(it *azsecrets.DeletedSecretProperties) string { return it.ID.Name() })
		})
	}, func(it page) facts {
		// Other lifecycles use the same vault.
		own := []string{}
		for _, found := range it.names {
			if strings.HasPrefix(found, name) {
				own = append(own, found)
			}
		}
		return facts{"several_pages": it.pages > 1, "items": own}
	})
	runStep(l.steps, "recover a secret", func() (azsecrets.Secret, error) {
		response, err := client.RecoverDeletedSecret(l.ctx, name, nil)
		return response.Secret, err
	}, secretPropertyFacts)
	runStep(l.steps, "get the recovered secret", get, secretFacts)
	setUp(l.steps, remove)
	runStep(l.steps, "purge a secret", func() (azsecrets.PurgeDeletedSecretResponse, error) {
		return client.PurgeDeletedSecret(l.ctx, name, nil)
	}, nothing)
	runStep(l.steps, "get a purged secret", func() (azsecrets.GetDeletedSecretResponse, error) {
		return client.GetDeletedSecret(l.ctx, name, nil)
	}, nothing)
}
