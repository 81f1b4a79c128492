// Package mlog stands in for the logging module of the Secrets Store CSI driver, which the
// module proxy does not serve. It has the names that the driver calls, over klog.
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
func Fatal(err error) {
	klog.ErrorS(err, "fatal error")
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
