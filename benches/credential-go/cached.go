package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

const (
	manyScopes   = 1000
	sampleTime   = 200 * time.Microsecond
	sampleCount  = 2000
	threadRounds = 300
	threadTime   = 2 * time.Millisecond
)

func measureCachedTokens() ([]measurement, error) {
	one, oneService, err := openWithTokens(1)
	if err != nil {
		return nil, err
	}
	many, manyService, err := openWithTokens(manyScopes)
	if err != nil {
		return nil, err
	}
	number := 0
	measured := measureCalls("cached_token_1_scope", one, func() string { return scopes[0] })
	measured = append(measured, measureCalls("cached_token_1000_scopes", many, func() string { return scopes[manyScopes/2] })...)
	inTurn := measureCalls("cached_token_1000_scopes_in_turn", many, func() string {
		number = (number + 1) % manyScopes
		return scopes[number]
	})
	measured = append(measured, inTurn[0])
	// Without a further token request, every measured call returned a cached token.
	if requests := oneService.requests.Load() + manyService.requests.Load(); requests != 1+manyScopes {
		return nil, fmt.Errorf("%d token requests for %d scopes", requests, 1+manyScopes)
	}
	return measured, nil
}

// measureCalls returns the time and the allocations of one call. next returns the scope of a call.
func measureCalls(metric string, credential azcore.TokenCredential, next func() string) []measurement {
	calls := callsPerSample(credential, sampleTime, next)
	samples := make([]float64, 0, sampleCount)
	for range sampleCount {
		start := time.Now()
		for range calls {
			_ = requestToken(credential, next())
		}
		samples = append(samples, float64(time.Since(start).Nanoseconds())/float64(calls))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		_ = requestToken(credential, next())
	}
	runtime.ReadMemStats(&after)
	return []measurement{
		newMeasurement(metric, "ns", median(samples)),
		newMeasurement(metric+"_allocations", "allocations", float64(after.Mallocs-before.Mallocs)/float64(calls)),
	}
}

// callsPerSample returns the number of calls that take about this duration.
func callsPerSample(credential azcore.TokenCredential, duration time.Duration, next func() string) int {
	calls := 0
	for start := time.Now(); time.Since(start) < 20*duration; calls++ {
		_ = requestToken(credential, next())
	}
	return max(1, calls/20)
}

func measureThreads() ([]measurement, error) {
	credential, _, err := openWithTokens(1)
	if err != nil {
		return nil, err
	}
	cores := runtime.NumCPU()
	threadCounts := []struct {
		metric     string
		goroutines int
	}{
		{"cached_token_throughput_1_thread", 1},
		{"cached_token_throughput_all_cores", cores},
		{"cached_token_throughput_twice_the_cores", 2 * cores},
	}
	calls := callsPerSample(credential, threadTime, func() string { return scopes[0] })
	best := make([]float64, len(threadCounts))
	// The best round counts, as in benches/credential.
	for range threadRounds {
		for index, count := range threadCounts {
			best[index] = max(best[index], throughput(credential, count.goroutines, calls))
		}
	}
	var measured []measurement
	for index, count := range threadCounts {
		measured = append(measured, newMeasurement(count.metric, "calls/ms", best[index]))
	}
	return measured, nil
}

// throughput returns the calls per millisecond of all goroutines together.
func throughput(credential azcore.TokenCredential, goroutines, calls int) float64 {
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for range goroutines {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			for range calls {
				_ = requestToken(credential, scopes[0])
			}
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return float64(goroutines*calls) / (time.Since(start).Seconds() * 1e3)
}

// scopes are created before the measurements, so that no measurement includes their allocation.
var scopes = func() []string {
	all := make([]string, manyScopes)
	for number := range all {
		all[number] = scopeName(number)
	}
	return all
}()
