package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// tokenLength is the length of a real token, in bytes.
const tokenLength = 1500

// tokenService is an HTTP transport with the responses of Entra and without a network. It returns the OpenID
// configuration immediately, and a token or an error after the latency.
type tokenService struct {
	latency      time.Duration
	returnsError bool
	requests     atomic.Int64
}

func (service *tokenService) Do(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/.well-known/openid-configuration") {
		return newResponse(request, http.StatusOK, openIDConfiguration(request)), nil
	}
	service.requests.Add(1)
	time.Sleep(service.latency)
	if service.returnsError {
		return newResponse(request, http.StatusBadRequest, errorBody), nil
	}
	token := strings.Repeat("t", tokenLength)
	body := fmt.Sprintf(`{"token_type":"Bearer","expires_in":86400,"ext_expires_in":86400,"access_token":"%s"}`, token)
	return newResponse(request, http.StatusOK, body), nil
}

func openIDConfiguration(request *http.Request) string {
	tenant, _, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	base := "https://" + request.URL.Host + "/" + tenant
	return fmt.Sprintf(`{"authorization_endpoint":"%[1]s/oauth2/v2.0/authorize","token_endpoint":"%[1]s/oauth2/v2.0/token","issuer":"%[1]s/v2.0"}`, base)
}

func newResponse(request *http.Request, status int, body string) *http.Response {
	return &http.Response{
		Request:    request,
		StatusCode: status,
		Status:     http.StatusText(status),
		Header:     http.Header{"Content-Type": []string{"application/json"}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

const errorBody = `{"error":"unauthorized_client","error_description":"AADSTS700016: Application was not found in the directory.","error_codes":[700016]}`
