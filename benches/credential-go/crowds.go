package main

import (
	"errors"
	"sync"
	"time"
)

const (
	coldCallers    = 10000
	coldRounds     = 11
	coldLatency    = 50 * time.Millisecond
	refusedCallers = 20
	refusedLatency = 200 * time.Millisecond
)

func measureCold() ([]measurement, error) {
	service := &tokenService{latency: coldLatency}
	credential, err := open(service)
	if err != nil {
		return nil, err
	}
	var times []float64
	for round := range coldRounds {
		start := time.Now()
		if _, err := crowd(coldCallers, func() error { return take(credential, scopes[round]) }); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start).Seconds()*1e3)
	}
	requests := float64(service.requests.Load()) / coldRounds
	return []measurement{
		row("cold_scope_requests", "requests", requests),
		row("cold_scope_time", "ms", median(times)),
	}, nil
}

func measureRefused() ([]measurement, error) {
	service := &tokenService{latency: refusedLatency, refuses: true}
	credential, err := open(service)
	if err != nil {
		return nil, err
	}
	longest, err := crowd(refusedCallers, func() error {
		if take(credential, scopes[0]) == nil {
			return errors.New("a caller got a token from a service that refuses")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []measurement{
		row("refused_requests", "requests", float64(service.requests.Load())),
		row("refused_longest_wait", "ms", longest.Seconds()*1e3),
	}, nil
}

// crowd calls at once, as often as wanted, and returns the longest wait.
func crowd(callers int, call func() error) (time.Duration, error) {
	waits := make([]time.Duration, callers)
	problems := make([]error, callers)
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			start := time.Now()
			problems[caller] = call()
			waits[caller] = time.Since(start)
		})
	}
	group.Wait()
	longest := time.Duration(0)
	for _, wait := range waits {
		longest = max(longest, wait)
	}
	return longest, errors.Join(problems...)
}
