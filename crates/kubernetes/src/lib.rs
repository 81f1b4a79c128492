//! Client for the Kubernetes API: credentials and connections, single calls with a timeout, retries and
//! typed errors, and watches that resume after every failure.
//!
//! ```no_run
//! use kube::Api;
//! use k8s_openapi::api::core::v1::Namespace;
//! use lanyard_clock::SystemClock;
//! use lanyard_kubernetes::{ApiAccess, ApiRetryPolicy, KubernetesApi, UserAgent};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let access = ApiAccess::Kubeconfig("/root/.kube/config".into());
//! let agent = UserAgent::from_static("lanyard-example/1.0");
//! let api = KubernetesApi::connect(&access, agent, SystemClock::shared()).await?;
//! let namespaces = Api::<Namespace>::all(api.client().clone());
//! let read = || namespaces.get("default");
//! let found = api.call_optional(ApiRetryPolicy::STANDARD, "read namespace default", read).await?;
//! # drop(found);
//! # Ok(())
//! # }
//! ```

mod access;
mod access_error;
mod call;
mod connections;
mod objects;
mod watch;

/// The value of the `User-Agent` header, as the API server's audit log shows it: `<program>/<version>`.
pub use http::HeaderValue as UserAgent;

pub use access::{ApiAccess, KubectlAccess, KubectlContext};
pub use access_error::AccessError;
pub use call::{ApiError, ApiRetryPolicy, FieldConflict, KubernetesApi};
pub use connections::WatchConnection;
pub use objects::{ObjectClient, ObjectReference};
pub use watch::{ResourceWatch, WatchUpdate, with_type_meta};
