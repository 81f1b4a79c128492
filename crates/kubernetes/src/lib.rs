//! The way to a Kubernetes API server: access, connections, one call with its deadline, its retries
//! and its errors, and watches that go on.
//!
//! ```no_run
//! use kube::Api;
//! use k8s_openapi::api::core::v1::Namespace;
//! use lanyard_clock::SystemClock;
//! use lanyard_kubernetes::{ApiAccess, KubernetesApi, Patience, UserAgent};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let access = ApiAccess::Kubeconfig("/root/.kube/config".into());
//! let agent = UserAgent::from_static("lanyard-example/1.0");
//! let api = KubernetesApi::connect(&access, agent, SystemClock::shared()).await?;
//! let namespaces = Api::<Namespace>::all(api.client().clone());
//! let read = || namespaces.get("default");
//! let found = api.find(Patience::USUAL, "read namespace default", read).await?;
//! # drop(found);
//! # Ok(())
//! # }
//! ```

mod access;
mod call;
mod connections;
mod watch;

/// Who asks, as the API server's logs tell it: `<program>/<version>`.
pub use http::HeaderValue as UserAgent;

pub use access::{AccessError, ApiAccess, KubectlAccess};
pub use call::{ApiError, ApiRetryPolicy, FieldConflict, KubernetesApi, backoff};
pub use connections::WatchConnection;
pub use watch::{ResourceWatch, WatchUpdate, with_type_meta};
