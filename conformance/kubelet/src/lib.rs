//! A stand-in for the kubelet, for tests: it drives the sockets of a CSI driver as the kubelet does.
//!
//! It finds drivers by their registration sockets, publishes the inline volumes of pods, publishes
//! them again and again, and unpublishes them. What it imitates was measured on kubelet 1.36.3
//! (1.35.4 and 1.34.4 where they differ):
//!
//! | | as the kubelet |
//! |---|---|
//! | calls | each on a new connection, authority `localhost`, deadline 2 min; `NodeGetCapabilities` twice before a publish |
//! | request | read-only, `SINGLE_NODE_WRITER`, no staging path; `fsGroup` where the driver has `VOLUME_MOUNT_GROUP` |
//! | `volume_context` | the user's attributes, overwritten by the pod's name, namespace, UID, ServiceAccount and `ephemeral` |
//! | tokens | in `volume_context`, or in `secrets` alone ([`CsiDriverObject::tokens_in_secrets`]); kept until four fifths of their life |
//! | disk | parent directory and `vol_data.json` before the first publish, never the target |
//! | cadence | again 0.6 to 0.9 s after the first success, then every 1.05 to 1.4 sync periods; once only without `requiresRepublish` |
//! | first publish fails | with a final code the directory goes and no unpublish follows; otherwise it stays, and deletion unpublishes |
//! | republish fails | the volume stays; retries after 0.5 s, doubling to 2 min 2 s, whatever the code |
//! | deletion | waits for a publish in flight, never for a back-off |
//! | restart | calls in flight break off; drivers from their sockets, volumes from `vol_data.json`; publishes again, unpublishes what has no pod any more |
//!
//! Volumes are served in parallel, one volume strictly in order.
//!
//! It differs from the kubelet in this: there are no containers, so nobody binds a volume and a
//! pod is deleted at once; `GetInfo` is asked once, not sometimes twice; volume statistics are
//! not collected; pods and drivers are what the caller says, not what an API server does; and a
//! registration is noticed when it is looked for ([`FakeKubelet::tick`], or every 0.2 s in
//! [`FakeKubelet::run`]) instead of one to two seconds after it appears.
//!
//! Time is the clock's, so hours of republishing run in one test. [`FakeKubelet::tick`] does what is
//! due and waits for it; [`FakeKubelet::run`] does the same all the time.
//!
//! ```
//! use lanyard_clock::SystemClock;
//! use lanyard_kubelet::{Event, InlineVolume, Kubelet, PodSpec};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = tempfile::tempdir()?;
//! let kubelet = Kubelet::new(root.path(), SystemClock::shared());
//! let volume = InlineVolume::new("credentials", "secrets-store.csi.k8s.io")
//!     .with_attribute("secretProviderClass", "managed-azure-cpo");
//! kubelet.add(PodSpec::new("clusters-example", "cpo-0", "uid-1").with_volume(volume));
//!
//! let events = kubelet.tick().await;
//! assert!(matches!(&events[0], Event::NotSent { message, .. } if message.contains("not registered")));
//! # Ok(())
//! # }
//! ```

mod directory;
mod driver_calls;
mod event;
mod kubelet;
mod lifecycle;
mod pod;
mod publish_request;
mod registry;
mod settings;
mod token_minter;

pub use directory::{KubeletDirectoryError, volume_id};
pub use event::{KubeletEvent, VolumeKey};
pub use kubelet::FakeKubelet;
pub use pod::{InlineVolume, PodSpec, RedactedString};
pub use registry::RegisteredDriver;
pub use settings::{CsiDriverObject, FakeKubeletSettings, TokenRequest};
pub use token_minter::{MintedToken, OpaqueTokenMinter, TokenMintError, TokenMinter};
