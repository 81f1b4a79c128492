//! An API server of one's own on loopback: etcd and kube-apiserver, and nothing else.
//!
//! [`Programs::find`] says where the two programs are on this machine, [`ControlPlane::start`]
//! runs them in a directory of their own. No controller, no scheduler and no node is behind the
//! API: what is written stays as it was written. Both processes end, and the directory goes, with
//! the value; [`ControlPlane::clear_abandoned`] ends what a killed process could not.
//!
//! Everybody on the machine reaches the ports, so all that is answered is answered to who shows a
//! token or a certificate, and only this user reads the files with both.
//!
//! ```no_run
//! use lanyard_apiserver::{ControlPlane, ControlPlaneOptions, Programs, ProgramPlaces};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let places = ProgramPlaces { assets: Some("/usr/local/kubebuilder/bin".into()), ..Default::default() };
//! let programs = Programs::find(&places)?;
//! let options = ControlPlaneOptions::new(programs.etcd, programs.kube_apiserver);
//! let plane = ControlPlane::start(options).await?;
//! println!("{}", plane.kubeconfig(ControlPlane::ADMINISTRATOR).display());
//! # Ok(())
//! # }
//! ```

mod abandoned;
mod bearer_token;
mod certificates;
mod control_plane;
mod error;
mod locked_directory;
mod ports;
mod private;
mod programs;

pub use bearer_token::BearerToken;
pub use control_plane::{ControlPlane, ControlPlaneOptions, SharedControlPlane, StoreAccess};
pub use error::ControlPlaneError;
pub use locked_directory::{Abandoned, LockedDirectory, find_abandoned};
pub use ports::{NoPorts, choose_ports};
pub use programs::{NoPrograms, ProgramPlaces, Programs};
