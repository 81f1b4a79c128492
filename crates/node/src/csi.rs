//! The CSI services. They parse a request, call the publisher, and map the result to a gRPC status.

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
