//! Metrics, liveness and readiness of long-running commands.
//!
//! ```
//! use lanyard_telemetry::prometheus_client::metrics::counter::Counter;
//! use lanyard_telemetry::{MetricsPage, Readiness};
//!
//! let readiness = Readiness::default();
//! let classes = readiness.gate("classes", "the classes are not listed yet");
//! assert_eq!(readiness.problems()[0].to_string(), "classes: the classes are not listed yet");
//! classes.open();
//! assert!(readiness.is_ready());
//!
//! let calls = Counter::<u64>::default();
//! let page = MetricsPage::build(|registry| registry.register("calls", "Calls", calls.clone()));
//! calls.inc();
//! assert!(page.render().contains("calls_total 1\n"));
//! ```

mod address;
mod connections;
mod labels;
mod liveness;
mod page;
mod process;
mod readiness;
mod remarks;
mod server;

pub use address::{ListenAddress, ParseListenAddressError};
pub use liveness::Liveness;
pub use page::MetricsPage;
pub use process::{BuildInfo, ProcessMetrics};
pub use prometheus_client;
pub use readiness::{Gate, NotReady, Readiness};
pub use remarks::Remarks;
pub use server::{ListenError, Listening, health_routes, metrics_routes};
