// Package mlog stands in for the logging module of the Secrets Store CSI driver and of
// kubernetes-kms, which the module proxy does not serve. It has the names that they call, over klog.
package mlog

import (
	"context"
	"flag"
	"fmt"
	"strconv"

	"k8s.io/klog/v2"
)

// Format names a log format. klog has one, so both names mean it.
type Format string

const (
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// Setup returns what has to run before the process ends.
func Setup() func() {
	return klog.Flush
}

// Fatal logs the error and ends the process.
func Fatal(err error, keysAndValues ...any) {
	klog.ErrorSDepth(1, err, "fatal error", keysAndValues...)
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}

// Error logs an error of the caller's.
func Error(msg string, err error, keysAndValues ...any) {
	klog.ErrorSDepth(1, err, msg, keysAndValues...)
}

// ValidateAndSetKlogLevelAndFormatGlobally sets klog's verbosity and refuses unknown formats.
func ValidateAndSetKlogLevelAndFormatGlobally(_ context.Context, level klog.Level, format Format) error {
	if format != FormatText && format != FormatJSON {
		return fmt.Errorf("unknown log format %q", format)
	}
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	return flags.Set("v", strconv.Itoa(int(level)))
}

// Levels of the key management plugin's logs, as klog's verbosity.
const (
	LevelInfo  klog.Level = 2
	LevelDebug klog.Level = 4
	LevelTrace klog.Level = 6
)

// Always logs whatever the verbosity.
func Always(msg string, keysAndValues ...any) {
	klog.InfoSDepth(1, msg, keysAndValues...)
}

// Info logs what operators want to know.
func Info(msg string, keysAndValues ...any) {
	at(LevelInfo, msg, keysAndValues)
}

// Debug logs what developers want to know.
func Debug(msg string, keysAndValues ...any) {
	at(LevelDebug, msg, keysAndValues)
}

// Trace logs everything.
func Trace(msg string, keysAndValues ...any) {
	at(LevelTrace, msg, keysAndValues)
}

func at(level klog.Level, msg string, keysAndValues []any) {
	if klog.V(level).Enabled() {
		klog.InfoSDepth(2, msg, keysAndValues...)
	}
}
