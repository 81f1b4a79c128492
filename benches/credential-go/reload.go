package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

const reloadCount = 300

// measureReload measures the steps of msi-dataplane after it detects a new version of a credential file: read the
// document, decode the certificate bundle, and create a credential.
func measureReload(pemFiles []string) ([]measurement, error) {
	path, err := writeDocument(pemFiles)
	if err != nil || path == "" {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(path))
	service := &tokenService{}
	var wall, cpu []float64
	for range reloadCount {
		start, cpuStart := time.Now(), processorTime()
		if err := loadCredential(path, service); err != nil {
			return nil, err
		}
		cpu = append(cpu, (processorTime()-cpuStart).Seconds()*1e3)
		wall = append(wall, time.Since(start).Seconds()*1e3)
	}
	return []measurement{newMeasurement("reload_cpu", "ms", median(cpu)), newMeasurement("reload_wall", "ms", median(wall))}, nil
}

type credentialDocument struct {
	ClientID     string `json:"client_id"`
	TenantID     string `json:"tenant_id"`
	ClientSecret string `json:"client_secret"`
	NotBefore    string `json:"not_before"`
}

func writeDocument(pemFiles []string) (string, error) {
	var pem []byte
	for _, file := range pemFiles {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		pem = append(pem, content...)
	}
	if len(pem) == 0 {
		return "", nil
	}
	content, err := json.Marshal(credentialDocument{client, tenant, base64.StdEncoding.EncodeToString(pem), "2026-01-01T00:00:00Z"})
	if err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("", "credential-bench")
	if err != nil {
		return "", err
	}
	path := filepath.Join(directory, "identity.json")
	return path, os.WriteFile(path, content, 0o600)
}

func loadCredential(path string, service *tokenService) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var document credentialDocument
	if err := json.Unmarshal(content, &document); err != nil {
		return err
	}
	if _, err := time.Parse(time.RFC3339, document.NotBefore); err != nil {
		return err
	}
	bundle, err := base64.StdEncoding.DecodeString(document.ClientSecret)
	if err != nil {
		return err
	}
	certificates, key, err := azidentity.ParseCertificates(bundle, nil)
	if err != nil {
		return err
	}
	_, err = azidentity.NewClientCertificateCredential(document.TenantID, document.ClientID, certificates, key, &azidentity.ClientCertificateCredentialOptions{
		ClientOptions:            clientOptions(service),
		DisableInstanceDiscovery: true,
		SendCertificateChain:     true,
	})
	return err
}

// processorTime returns the processor time of all threads of the process.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
