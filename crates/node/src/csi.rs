//! The CSI services: thin. A request is parsed, the publisher is called, what came of it is told.

#[cfg(feature = "sanity")]
mod controller;
mod driver_name;
mod grpc_metrics;
mod identity;
mod node;

#[cfg(feature = "sanity")]
pub(crate) use self::controller::EchoController;
pub use self::driver_name::{DriverName, ParseDriverNameError};
pub(crate) use self::grpc_metrics::GrpcMetricsLayer;
pub(crate) use self::identity::CsiIdentityService;
pub(crate) use self::node::CsiNodeService;
