// Package assertion sees which certificate a credential really uses, from outside.
package assertion

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Observer is a pipeline policy that reports the certificate of every token that was granted.
//
// It is put into the public client options, so the libraries that are observed stay as published.
type Observer struct {
	// Granted is called with the SHA-256 thumbprint, in lower-case hex.
	Granted func(thumbprint string)
}

// Do implements policy.Policy.
func (o *Observer) Do(request *policy.Request) (*http.Response, error) {
	thumbprint := ""
	if body := request.Body(); body != nil && request.Raw().Method == http.MethodPost {
		content, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		if err := request.RewindBody(); err != nil {
			return nil, err
		}
		thumbprint = thumbprintOf(string(content))
	}
	response, err := request.Next()
	if err == nil && response.StatusCode == http.StatusOK && thumbprint != "" {
		o.Granted(thumbprint)
	}
	return response, err
}

// thumbprintOf reads `x5t#S256` from the client assertion of a form; empty when there is none.
func thumbprintOf(form string) string {
	values, err := url.ParseQuery(form)
	if err != nil {
		return ""
	}
	header, _, found := strings.Cut(values.Get("client_assertion"), ".")
	if !found {
		return ""
	}
	decoded, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return ""
	}
	var fields struct {
		Thumbprint string `json:"x5t#S256"`
	}
	if err := json.Unmarshal(decoded, &fields); err != nil {
		return ""
	}
	// MSAL Go writes the standard alphabet with padding, the RFC wants the other one without.
	plain := strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(fields.Thumbprint)
	digest, err := base64.RawURLEncoding.DecodeString(plain)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(digest)
}
