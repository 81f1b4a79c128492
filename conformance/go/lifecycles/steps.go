package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sort"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
)

// facts are the fields of a result, by names that do not depend on the client.
type facts map[string]any

// steps prints the outcome of each step.
type steps struct {
	output *json.Encoder
	// failed is the first error that is no response of Azure. No step runs after it.
	failed error
}

// runStep makes a call and prints the facts of its result, or the error of Azure.
func runStep[T any](s *steps, step string, call func() (T, error), describe func(T) facts) T {
	var none T
	if s.failed != nil {
		return none
	}
	result, err := call()
	outcome := map[string]any{"step": step}
	var response *azcore.ResponseError
	switch {
	case err == nil:
		outcome["facts"] = describe(result)
	case errors.As(err, &response):
		outcome["error"] = errorDetails(response)
	default:
		s.failed = err
		return none
	}
	if err := s.output.Encode(outcome); err != nil {
		s.failed = err
	}
	return result
}

// setUp makes a call that is not a step.
func setUp[T any](s *steps, call func() (T, error)) T {
	var result T
	if s.failed == nil {
		result, s.failed = call()
	}
	return result
}

// nothing describes the result of a deletion.
func nothing[T any](T) facts {
	return facts{"result": nil}
}

// errorDetails has the inner code of Key Vault, which the client does not parse.
func errorDetails(err *azcore.ResponseError) map[string]any {
	details := map[string]any{
		"status":  err.StatusCode,
		"code":    err.ErrorCode,
		"message": err.Error(),
	}
	content, readErr := io.ReadAll(err.RawResponse.Body)
	if readErr != nil {
		return details
	}
	err.RawResponse.Body = io.NopCloser(bytes.NewReader(content))
	var body struct {
		Error struct {
			InnerError *struct {
				Code string `json:"code"`
			} `json:"innererror"`
		} `json:"error"`
	}
	if json.Unmarshal(content, &body) == nil && body.Error.InnerError != nil {
		details["inner"] = body.Error.InnerError.Code
	}
	return details
}

// poll waits for a long-running operation.
func poll[T any](ctx context.Context, poller *runtime.Poller[T], err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return poller.PollUntilDone(ctx, nil)
}

// page is a list of names, and the number of pages.
type page struct {
	pages int
	names []string
}

// readPages reads all pages. The names of their items are sorted.
func readPages[T any](ctx context.Context, pager *runtime.Pager[T], names func(T) []string) (page, error) {
	result := page{names: []string{}}
	for pager.More() {
		next, err := pager.NextPage(ctx)
		if err != nil {
			return result, err
		}
		result.pages++
		result.names = append(result.names, names(next)...)
	}
	sort.Strings(result.names)
	return result, nil
}

func pageFacts(it page) facts {
	return facts{"pages": it.pages, "items": it.names}
}

// namesOf returns the name of each item.
func namesOf[T any](items []*T, name func(*T) string) []string {
	names := make([]string, 0, len(items))
	for _, item := range items {
		names = append(names, name(item))
	}
	return names
}

func tags(stage string) map[string]*string {
	return map[string]*string{"stage": to.Ptr(stage)}
}
