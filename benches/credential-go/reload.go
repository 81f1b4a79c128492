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

const reloads = 300

// measureReload reads a credential document, decodes its bundle and makes a new credential of it: all that
// msi-dataplane does when it notices a new version.
func measureReload(pemFiles []string) ([]measurement, error) {
	path, err := writeDocument(pemFiles)
	if err != nil || path == "" {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(path))
	service := &tokenService{}
	var wall, cpu []float64
	for range reloads {
		start, startOfCPU := time.Now(), processorTime()
		if err := reload(path, service); err != nil {
			return nil, err
		}
		cpu = append(cpu, (processorTime()-startOfCPU).Seconds()*1e3)
		wall = append(wall, time.Since(start).Seconds()*1e3)
	}
	return []measurement{row("reload_cpu", "ms", median(cpu)), row("reload_wall", "ms", median(wall))}, nil
}

type document struct {
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
	content, err := json.Marshal(document{client, tenant, base64.StdEncoding.EncodeToString(pem), "2026-01-01T00:00:00Z"})
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp("", "credential-bench")
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "identity.json")
	return path, os.WriteFile(path, content, 0o600)
}

func reload(path string, service *tokenService) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var read document
	if err := json.Unmarshal(content, &read); err != nil {
		return err
	}
	if _, err := time.Parse(time.RFC3339, read.NotBefore); err != nil {
		return err
	}
	bundle, err := base64.StdEncoding.DecodeString(read.ClientSecret)
	if err != nil {
		return err
	}
	certificates, key, err := azidentity.ParseCertificates(bundle, nil)
	if err != nil {
		return err
	}
	_, err = azidentity.NewClientCertificateCredential(read.TenantID, read.ClientID, certificates, key, &azidentity.ClientCertificateCredentialOptions{
		ClientOptions:            clientOptions(service),
		DisableInstanceDiscovery: true,
		SendCertificateChain:     true,
	})
	return err
}

// processorTime returns the processor time of the whole process.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
