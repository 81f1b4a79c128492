//! Metrics, liveness and readiness of long-running commands.
