#!/bin/sh
# Compiles a crate of the workspace with the coverage counters that libFuzzer reads: cargo calls this as
# `RUSTC_WORKSPACE_WRAPPER`, with the compiler first. Dependencies are compiled as in every other build.
case " $* " in
  # The key derivation of PKCS#12 is generic, so this crate contains it. It is optimized, because the targets limit it
  # to three seconds. Optimization would end the checks for overflow. Assertions stay off: those of slices are slow.
  *" --crate-name lanyard_credential "*) set -- "$@" -Copt-level=3 -Coverflow-checks=on ;;
esac
exec "$@" \
  -Cpasses=sancov-module \
  -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares
