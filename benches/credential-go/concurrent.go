package main

import (
	"errors"
	"sync"
	"time"
)

const (
	coldScopeCallers = 10000
	coldScopeRounds  = 11
	coldScopeLatency = 50 * time.Millisecond
	rejectedCallers  = 20
	rejectedLatency  = 200 * time.Millisecond
)

// measureColdScope measures concurrent callers of one scope without a cached token.
func measureColdScope() ([]measurement, error) {
	service := &tokenService{latency: coldScopeLatency}
	credential, err := newCredential(service)
	if err != nil {
		return nil, err
	}
	var times []float64
	for round := range coldScopeRounds {
		start := time.Now()
		if _, err := callConcurrently(coldScopeCallers, func() error { return requestToken(credential, scopes[round]) }); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start).Seconds()*1e3)
	}
	requests := float64(service.requests.Load()) / coldScopeRounds
	return []measurement{
		newMeasurement("cold_scope_requests", "requests", requests),
		newMeasurement("cold_scope_time", "ms", median(times)),
	}, nil
}

// measureRejectedRequests measures concurrent callers while the token service returns an error.
func measureRejectedRequests() ([]measurement, error) {
	service := &tokenService{latency: rejectedLatency, returnsError: true}
	credential, err := newCredential(service)
	if err != nil {
		return nil, err
	}
	longest, err := callConcurrently(rejectedCallers, func() error {
		if requestToken(credential, scopes[0]) == nil {
			return errors.New("a caller received a token although the service returns errors")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []measurement{
		newMeasurement("refused_requests", "requests", float64(service.requests.Load())),
		newMeasurement("refused_longest_wait", "ms", longest.Seconds()*1e3),
	}, nil
}

// callConcurrently runs the call in this number of goroutines and returns the longest wait.
func callConcurrently(callers int, call func() error) (time.Duration, error) {
	waits := make([]time.Duration, callers)
	callErrors := make([]error, callers)
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			start := time.Now()
			callErrors[caller] = call()
			waits[caller] = time.Since(start)
		})
	}
	group.Wait()
	longest := time.Duration(0)
	for _, wait := range waits {
		longest = max(longest, wait)
	}
	return longest, errors.Join(callErrors...)
}
