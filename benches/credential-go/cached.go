package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

const (
	manyScopes    = 1000
	sampleTime    = 200 * time.Microsecond
	cachedSamples = 2000
	crowdRounds   = 300
	crowdTime     = 2 * time.Millisecond
)

func measureCached() ([]measurement, error) {
	one, oneService, err := openHolding(1)
	if err != nil {
		return nil, err
	}
	many, manyService, err := openHolding(manyScopes)
	if err != nil {
		return nil, err
	}
	turn := 0
	measured := measureHits("cached_token_1_scope", one, func() string { return scopes[0] })
	measured = append(measured, measureHits("cached_token_1000_scopes", many, func() string { return scopes[manyScopes/2] })...)
	inTurn := measureHits("cached_token_1000_scopes_in_turn", many, func() string {
		turn = (turn + 1) % manyScopes
		return scopes[turn]
	})
	measured = append(measured, inTurn[0])
	// Nothing was asked for again: what ran were hits.
	if made := oneService.requests.Load() + manyService.requests.Load(); made != 1+manyScopes {
		return nil, fmt.Errorf("%d requests for %d scopes", made, 1+manyScopes)
	}
	return measured, nil
}

// measureHits returns time and allocations of one call.
func measureHits(metric string, credential azcore.TokenCredential, next func() string) []measurement {
	calls := calibrate(credential, sampleTime, next)
	samples := make([]float64, 0, cachedSamples)
	for range cachedSamples {
		start := time.Now()
		for range calls {
			_ = take(credential, next())
		}
		samples = append(samples, float64(time.Since(start).Nanoseconds())/float64(calls))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range calls {
		_ = take(credential, next())
	}
	runtime.ReadMemStats(&after)
	return []measurement{
		row(metric, "ns", median(samples)),
		row(metric+"_allocations", "allocations", float64(after.Mallocs-before.Mallocs)/float64(calls)),
	}
}

// calibrate finds how many calls take about as long as wanted.
func calibrate(credential azcore.TokenCredential, wanted time.Duration, next func() string) int {
	calls := 0
	for start := time.Now(); time.Since(start) < 20*wanted; calls++ {
		_ = take(credential, next())
	}
	return max(1, calls/20)
}

func measureThreads() ([]measurement, error) {
	credential, _, err := openHolding(1)
	if err != nil {
		return nil, err
	}
	cores := runtime.NumCPU()
	crowds := []struct {
		metric     string
		goroutines int
	}{
		{"cached_token_throughput_1_thread", 1},
		{"cached_token_throughput_all_cores", cores},
		{"cached_token_throughput_twice_the_cores", 2 * cores},
	}
	calls := calibrate(credential, crowdTime, func() string { return scopes[0] })
	best := make([]float64, len(crowds))
	// The best round counts, as on the Rust side.
	for range crowdRounds {
		for index, crowd := range crowds {
			best[index] = max(best[index], throughput(credential, crowd.goroutines, calls))
		}
	}
	var measured []measurement
	for index, crowd := range crowds {
		measured = append(measured, row(crowd.metric, "calls/ms", best[index]))
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
				_ = take(credential, scopes[0])
			}
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return float64(goroutines*calls) / (time.Since(start).Seconds() * 1e3)
}

// Made beforehand, so that no measurement makes one.
var scopes = func() []string {
	all := make([]string, manyScopes)
	for number := range all {
		all[number] = scope(number)
	}
	return all
}()
