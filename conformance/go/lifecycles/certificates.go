package main

import (
	"crypto/x509"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azcertificates"

	"lanyard.dev/conformance/internal/program"
)

const certificateName = "certificate-tls"

func certificatePolicy() *azcertificates.CertificatePolicy {
	return &azcertificates.CertificatePolicy{
		IssuerParameters: &azcertificates.IssuerParameters{Name: to.Ptr("Self")},
		KeyProperties: &azcertificates.KeyProperties{
			KeyType: to.Ptr(azcertificates.KeyTypeRSA), KeySize: to.Ptr(int32(2048)),
		},
		SecretProperties: &azcertificates.SecretProperties{
			ContentType: to.Ptr("application/x-pem-file"),
		},
		X509CertificateProperties: &azcertificates.X509CertificateProperties{
			Subject: to.Ptr("CN=lifecycle.example"),
			SubjectAlternativeNames: &azcertificates.SubjectAlternativeNames{
				DNSNames: []*string{to.Ptr("lifecycle.example")},
			},
			ValidityInMonths: to.Ptr(int32(6)),
		},
		LifetimeActions: []*azcertificates.LifetimeAction{{
			Action: &azcertificates.LifetimeActionType{
				ActionType: to.Ptr(azcertificates.CertificatePolicyActionAutoRenew),
			},
			Trigger: &azcertificates.LifetimeActionTrigger{DaysBeforeExpiry: to.Ptr(int32(30))},
		}},
	}
}

func certificateFacts(it azcertificates.Certificate) facts {
	parsed, err := x509.ParseCertificate(it.CER)
	if err != nil {
		return facts{"problem": err.Error()}
	}
	days := parsed.NotAfter.Sub(parsed.NotBefore).Hours() / 24
	return facts{
		"name":                         it.ID.Name(),
		"version":                      it.ID.Version(),
		"enabled":                      it.Attributes.Enabled,
		"tags":                         it.Tags,
		"subject":                      parsed.Subject.String(),
		"dns_names":                    parsed.DNSNames,
		"months":                       int(math.Round(days / 30.4)),
		"secret_id":                    it.SID,
		"key_id":                       it.KID,
		"expires_with_the_certificate": it.Attributes.Expires.Equal(parsed.NotAfter),
	}
}

func runCertificates(l *lifecycle) error {
	client, err := azcertificates.NewClient(l.Vault, l.credential, nil)
	if err != nil {
		return err
	}
	create := func() (azcertificates.Certificate, error) {
		return l.createCertificate(client)
	}
	runStep(l.steps, "create a self-signed certificate", create, certificateFacts)
	runStep(l.steps, "get the operation", func() (azcertificates.CertificateOperation, error) {
		response, err := client.GetCertificateOperation(l.ctx, certificateName, nil)
		return response.CertificateOperation, err
	}, func(it azcertificates.CertificateOperation) facts {
		return facts{"status": it.Status, "target": it.Target, "error": it.Error}
	})
	runStep(l.steps, "get the policy", func() (azcertificates.CertificatePolicy, error) {
		response, err := client.GetCertificatePolicy(l.ctx, certificateName, nil)
		return response.CertificatePolicy, err
	}, policyFacts)
	runStep(l.steps, "change the properties", func() (azcertificates.Certificate, error) {
		parameters := azcertificates.UpdateCertificateParameters{Tags: tags("old")}
		response, err := client.UpdateCertificate(l.ctx, certificateName, "", parameters, nil)
		return response.Certificate, err
	}, certificateFacts)
	setUp(l.steps, create)
	runStep(l.steps, "list the versions", func() (page, error) {
		pager := client.NewListCertificatePropertiesVersionsPager(certificateName, nil)
		return readPages(l.ctx, pager, func(it azcertificates.ListCertificatePropertiesVersionsResponse) []string {
			return namesOf(it.Value, func(it *azcertificates.CertificateProperties) string {
				return it.ID.Name()
			})
		})
	}, pageFacts)
	runStep(l.steps, "get a missing certificate", func() (azcertificates.Certificate, error) {
		response, err := client.GetCertificate(l.ctx, "missing", "", nil)
		return response.Certificate, err
	}, certificateFacts)
	remove := func() (azcertificates.DeleteCertificateResponse, error) {
		return client.DeleteCertificate(l.ctx, certificateName, nil)
	}
	runStep(l.steps, "delete a certificate", remove, func(it azcertificates.DeleteCertificateResponse) facts {
		return facts{"name": it.ID.Name(), "recovery_id": it.RecoveryID}
	})
	runStep(l.steps, "recover a certificate", func() (azcertificates.RecoverDeletedCertificateResponse, error) {
		return client.RecoverDeletedCertificate(l.ctx, certificateName, nil)
	}, func(it azcertificates.RecoverDeletedCertificateResponse) facts {
		return facts{"name": it.ID.Name()}
	})
	setUp(l.steps, remove)
	runStep(l.steps, "purge a certificate", func() (azcertificates.PurgeDeletedCertificateResponse, error) {
		return client.PurgeDeletedCertificate(l.ctx, certificateName, nil)
	}, nothing)
	runStep(l.steps, "get a purged certificate", func() (azcertificates.GetDeletedCertificateResponse, error) {
		return client.GetDeletedCertificate(l.ctx, certificateName, nil)
	}, nothing)
	return nil
}

func policyFacts(it azcertificates.CertificatePolicy) facts {
	actions := []facts{}
	for _, action := range it.LifetimeActions {
		actions = append(actions, facts{
			"action":             action.Action.ActionType,
			"days_before_expiry": action.Trigger.DaysBeforeExpiry,
		})
	}
	return facts{
		"issuer":       it.IssuerParameters.Name,
		"subject":      it.X509CertificateProperties.Subject,
		"content_type": it.SecretProperties.ContentType,
		"months":       it.X509CertificateProperties.ValidityInMonths,
		"key_type":     it.KeyProperties.KeyType,
		"key_size":     it.KeyProperties.KeySize,
		"actions":      actions,
	}
}

// createCertificate creates a certificate and waits for it, because the module has no poller.
func (l *lifecycle) createCertificate(client *azcertificates.Client) (azcertificates.Certificate, error) {
	parameters := azcertificates.CreateCertificateParameters{
		CertificatePolicy: certificatePolicy(), Tags: tags("test"),
	}
	if _, err := client.CreateCertificate(l.ctx, certificateName, parameters, nil); err != nil {
		return azcertificates.Certificate{}, err
	}
	for range 100 {
		operation, err := client.GetCertificateOperation(l.ctx, certificateName, nil)
		if err != nil {
			return azcertificates.Certificate{}, err
		}
		if status := program.Value(operation.Status); !strings.EqualFold(status, "inProgress") {
			response, err := client.GetCertificate(l.ctx, certificateName, "", nil)
			return response.Certificate, err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return azcertificates.Certificate{}, errors.New("the certificate was not created in time")
}
