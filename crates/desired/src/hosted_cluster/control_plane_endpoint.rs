//! The address of a hosted API server.

use serde::{Deserialize, Serialize};

/// The address of a hosted API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPlaneEndpoint {
    /// The host name or the IP address.
    pub host: String,
    /// The port.
    pub port: i32,
}
