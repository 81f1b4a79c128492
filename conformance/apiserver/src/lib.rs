//! Runs etcd and kube-apiserver on loopback, for tests.
//!
//! [`ControlPlane::start`] runs both programs in a temporary directory. There is no controller,
//! scheduler or node behind the API: objects stay as they were written. Dropping the value ends
//! both processes and removes the directory.
//!
//! Every user of the machine can reach the ports. The API server therefore requires a token and
//! etcd a client certificate, and only the current user can read the files that contain them.
//!
//! ```no_run
//! use lanyard_apiserver::{ControlPlane, ControlPlaneOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let programs = std::path::Path::new("/usr/local/kubebuilder/bin");
//! let options = ControlPlaneOptions::new(programs.join("etcd"), programs.join("kube-apiserver"));
//! let plane = ControlPlane::start(options).await?;
//! println!("{}", plane.kubeconfig_path(ControlPlane::ADMINISTRATOR).display());
//! # Ok(())
//! # }
//! ```

mod bearer_token;
mod certificates;
mod control_plane;
mod error;
mod ports;
mod private_files;

pub use bearer_token::BearerToken;
pub use control_plane::{ControlPlane, ControlPlaneOptions, EtcdAccess, SharedControlPlane};
pub use error::ControlPlaneError;
pub use ports::{NoFreePorts, choose_ports};
