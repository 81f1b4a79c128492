//! A fake kubelet for tests, which calls a CSI driver over its sockets as the kubelet does.
//!
//! It finds drivers by their registration sockets, and publishes, republishes and unpublishes the inline
//! volumes of pods. Its behavior was measured on kubelet 1.36.3 (1.35.4 and 1.34.4 where they differ):
//!
//! | | behavior |
//! |---|---|
//! | calls | each on a new connection, authority `localhost`, deadline 2 min; `NodeGetCapabilities` twice before a publish |
//! | request | read-only, `SINGLE_NODE_WRITER`, no staging path; `fsGroup` where the driver has `VOLUME_MOUNT_GROUP` |
//! | `volume_context` | the user's attributes, overwritten by the pod's name, namespace, UID, ServiceAccount and `ephemeral` |
//! | tokens | in `volume_context`, or in `secrets` alone ([`CsiDriverObject::tokens_in_secrets`]); cached for four fifths of their lifetime |
//! | disk | the kubelet creates the parent directory and `vol_data.json` before the first publish, never the target |
//! | republishing | 0.6 to 0.9 s after the first success, then every 1.05 to 1.4 sync periods; never without `requiresRepublish` |
//! | first publish fails | after a final code the directory is removed and no unpublish follows; otherwise the directory stays, and deletion unpublishes |
//! | republish fails | the volume stays; retries after 0.5 s, doubling to 2 min 2 s, whatever the code |
//! | deletion | waits for a publish in flight, never for a back-off |
//! | restart | calls in flight are cancelled; drivers are found by their sockets and volumes by `vol_data.json`; volumes are published again, or unpublished if their pod is gone |
//!
//! Volumes are served in parallel; the calls of one volume run in order.
//!
//! Differences from the kubelet: there are no containers, so no process uses a volume and a pod is deleted
//! immediately; `GetInfo` is called once, not sometimes twice; volume statistics are not collected; pods and
//! CSIDriver objects come from the caller, not from an API server; and a registration is found by the next
//! scan ([`FakeKubelet::tick`], or every 0.2 s in [`FakeKubelet::run`]) instead of one to two seconds after
//! it appears.
//!
//! The caller's clock drives all delays, so one test can run hours of republishing. [`FakeKubelet::tick`]
//! makes the calls that are due and waits for them; [`FakeKubelet::run`] does so continuously.
//!
//! ```
//! use lanyard_clock::SystemClock;
//! use lanyard_kubelet::{FakeKubelet, InlineVolume, KubeletEvent, PodSpec};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let root = tempfile::tempdir()?;
//! let kubelet = FakeKubelet::new(root.path(), SystemClock::shared());
//! let volume = InlineVolume::new("credentials", "secrets-store.csi.k8s.io")
//!     .with_attribute("secretProviderClass", "managed-azure-cpo");
//! kubelet.add_pod(PodSpec::new("clusters-example", "cpo-0", "uid-1").with_volume(volume));
//!
//! let events = kubelet.tick().await;
//! assert!(matches!(&events[0], KubeletEvent::PublishNotSent { message, .. } if message.contains("not registered")));
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
