// Package assertion observes which certificate a credential uses in its token requests.
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

// Observer is a pipeline policy that reports the certificate of every successful token request.
//
// Set it in the public client options, so that the observed library stays unmodified.
type Observer struct {
	// OnToken is called with the SHA-256 thumbprint of the certificate, in lower-case hex.
	OnToken func(thumbprint string)
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
		thumbprint = assertionThumbprint(string(content))
	}
	response, err := request.Next()
	if err == nil && response.StatusCode == http.StatusOK && thumbprint != "" {
		o.OnToken(thumbprint)
	}
	return response, err
}

// assertionThumbprint returns `x5t#S256` of the client assertion in a form body, or an empty string.
func assertionThumbprint(form string) string {
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
	// MSAL Go writes standard base64 with padding; RFC 7515 requires base64url without padding.
	plain := strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(fields.Thumbprint)
	digest, err := base64.RawURLEncoding.DecodeString(plain)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(digest)
}
