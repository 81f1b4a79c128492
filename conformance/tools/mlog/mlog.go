// Package mlog replaces monis.app/mlog, a logging module that the module proxy does not serve. It has the functions
// that the Secrets Store CSI driver and kubernetes-kms call, and logs with klog.
package mlog

import (
	"context"
	"flag"
	"fmt"
	"strconv"

	"k8s.io/klog/v2"
)

// Format is a log format. klog has only one, so both values select it.
type Format string

const (
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// Setup returns the function to call before the process exits.
func Setup() func() {
	return klog.Flush
}

// Fatal logs the error and exits the process.
func Fatal(err error, keysAndValues ...any) {
	klog.ErrorSDepth(1, err, "fatal error", keysAndValues...)
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}

// Error logs an error.
func Error(msg string, err error, keysAndValues ...any) {
	klog.ErrorSDepth(1, err, msg, keysAndValues...)
}

// ValidateAndSetKlogLevelAndFormatGlobally sets the verbosity of klog. Returns an error for an unknown format.
func ValidateAndSetKlogLevelAndFormatGlobally(_ context.Context, level klog.Level, format Format) error {
	if format != FormatText && format != FormatJSON {
		return fmt.Errorf("unknown log format %q", format)
	}
	var flags flag.FlagSet
	klog.InitFlags(&flags)
	return flags.Set("v", strconv.Itoa(int(level)))
}

// The log levels of kubernetes-kms, as verbosities of klog.
const (
	LevelInfo  klog.Level = 2
	LevelDebug klog.Level = 4
	LevelTrace klog.Level = 6
)

// Always logs at every verbosity.
func Always(msg string, keysAndValues ...any) {
	klog.InfoSDepth(1, msg, keysAndValues...)
}

// Info logs at LevelInfo.
func Info(msg string, keysAndValues ...any) {
	logAt(LevelInfo, msg, keysAndValues)
}

// Debug logs at LevelDebug.
func Debug(msg string, keysAndValues ...any) {
	logAt(LevelDebug, msg, keysAndValues)
}

// Trace logs at LevelTrace.
func Trace(msg string, keysAndValues ...any) {
	logAt(LevelTrace, msg, keysAndValues)
}

func logAt(level klog.Level, msg string, keysAndValues []any) {
	if klog.V(level).Enabled() {
		klog.InfoSDepth(2, msg, keysAndValues...)
	}
}
