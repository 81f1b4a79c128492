//! Metrics, liveness and readiness of long-running commands.
//!
//! ```
//! use lanyard_telemetry::prometheus_client::metrics::counter::Counter;
//! use lanyard_telemetry::{MetricsPage, Readiness};
//!
//! let readiness = Readiness::default();
//! let classes = readiness.add_gate("classes", "the classes are not listed yet");
//! assert_eq!(readiness.problems()[0].to_string(), "classes: the classes are not listed yet");
//! classes.open();
//! assert!(readiness.is_ready());
//!
//! let calls = Counter::<u64>::default();
//! let page = MetricsPage::build(|registry| registry.register("calls", "Calls", calls.clone()));
//! calls.inc();
//! assert!(page.render().contains("calls_total 1\n"));
//! ```

mod connection_limit;
mod labels;
mod listen_address;
mod liveness;
mod metrics_page;
mod process_metrics;
mod readiness;
mod readiness_warnings;
mod server;

pub use listen_address::{ListenAddress, ParseListenAddressError};
pub use liveness::LivenessProbe;
pub use metrics_page::MetricsPage;
pub use process_metrics::{BuildInfo, ProcessMetrics};
pub use prometheus_client;
pub use readiness::{Readiness, ReadinessGate, ReadinessProblem};
pub use readiness_warnings::ReadinessWarnings;
pub use server::{
    BoundListener, ListenError, health_routes, metrics_routes, serve_process_endpoints,
};
