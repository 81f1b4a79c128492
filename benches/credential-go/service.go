package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// As long as a real token.
const tokenLength = 1500

// tokenService answers in process what Entra would: its configuration at once, a token or a refusal after the latency.
type tokenService struct {
	latency  time.Duration
	refuses  bool
	requests atomic.Int64
}

func (service *tokenService) Do(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/.well-known/openid-configuration") {
		return answer(request, http.StatusOK, configuration(request)), nil
	}
	service.requests.Add(1)
	time.Sleep(service.latency)
	if service.refuses {
		return answer(request, http.StatusBadRequest, refusal), nil
	}
	token := strings.Repeat("t", tokenLength)
	body := fmt.Sprintf(`{"token_type":"Bearer","expires_in":86400,"ext_expires_in":86400,"access_token":"%s"}`, token)
	return answer(request, http.StatusOK, body), nil
}

func configuration(request *http.Request) string {
	tenant, _, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	base := "https://" + request.URL.Host + "/" + tenant
	return fmt.Sprintf(`{"authorization_endpoint":"%[1]s/oauth2/v2.0/authorize","token_endpoint":"%[1]s/oauth2/v2.0/token","issuer":"%[1]s/v2.0"}`, base)
}

func answer(request *http.Request, status int, body string) *http.Response {
	return &http.Response{
		Request:    request,
		StatusCode: status,
		Status:     http.StatusText(status),
		Header:     http.Header{"Content-Type": []string{"application/json"}},
		Body:       io.NopCloser(strings.NewReader(body)),
	}
}

const refusal = `{"error":"unauthorized_client","error_description":"AADSTS700016: Application was not found in the directory.","error_codes":[700016]}`
