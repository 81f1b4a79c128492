//! `azure.sock`: our Key Vault provider for other people's drivers, and for the Secret sync
//! controller.
//!
//! Upstream drivers (v1.5.6, v1.6.0) and `secrets-store-sync-controller` call the provider protocol
//! `v1alpha1`. The requests differ little: the controller sends the path `/mnt/secrets-store`, names
//! itself as the pod, and always `{}` as secrets.
//!
//! What a caller says about the pod is believed: the socket is open to root alone. A driver lays the
//! volume's attributes over the class before it calls, so here nobody can tell the class's word from
//! the pod's; the policy judges what is asked for all the same.

mod mount_request;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use lanyard_clock::SharedClock;
use lanyard_grpc::provider::csi_driver_provider_server::CsiDriverProvider;
use lanyard_grpc::provider::{
    File, MountRequest, MountResponse, ObjectVersion as WireVersion, VersionRequest,
    VersionResponse,
};
use lanyard_keyvault::RetryClass;
use lanyard_vocabulary::{OutcomeCode, RecoveryMode};
use parking_lot::Mutex;
use tonic::{Code, Request, Response, Status};

use crate::memory::{FetchMemory, MemoryAccount};
use crate::provider::socket::PROTOCOL;
use crate::provider::{Provider, ProviderError, ProviderRequest, ProviderResponse};

pub(crate) use mount_request::ParsedMountRequest;

/// The name that `Version` gives.
const RUNTIME: &str = "lanyard";

/// How many filled volumes are remembered: many times as many as a node has.
const MAX_SERVED_VOLUMES: usize = 4096;

/// How long ago a volume must have been filled for a driver to be only looking. One that could not
/// write what it was given asks again sooner, and a pod waits for it.
const ROTATION_AFTER: Duration = Duration::from_mins(1);

/// How long a read waits for memory. Drivers give up after two minutes.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(90);

/// Answers the provider protocol out of a provider of this process.
pub struct ProviderServer {
    provider: Arc<dyn Provider>,
    clock: SharedClock,
    memory: MemoryAccount,
    served_volumes: Mutex<ServedVolumes>,
}

impl ProviderServer {
    /// Serves this provider; behind the policy, if there is one. What it reads counts in `memory`.
    pub fn new(provider: Arc<dyn Provider>, memory: MemoryAccount, clock: SharedClock) -> Self {
        Self { provider, clock, memory, served_volumes: Mutex::default() }
    }

    /// Fills, with room for the message and for what is sent of it.
    async fn fetch_with_reservation(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        let filling = self.provider.fetch(request).await?;
        let content = filling.files.iter().map(|file| byte_length(file.content.len()));
        let room = content.fold(0, u64::saturating_add).saturating_mul(2);
        request
            .memory
            .reserve_read_memory(room)
            .await
            .map_err(ProviderError::from_memory_exhausted)?;
        Ok(filling)
    }
}

/// The volumes that were filled and when last, by what tells them apart. Whoever asks for one of
/// them again after a while has what it needs and is only looking: its read stands behind those of
/// pods that start. The oldest is forgotten first; it is taken for a start then, which costs no more
/// than its turn.
#[derive(Default)]
struct ServedVolumes {
    last_served: HashMap<[u8; 32], Duration>,
    order: VecDeque<[u8; 32]>,
}

impl ServedVolumes {
    fn was_served_before(&self, volume: &[u8; 32], now: Duration) -> bool {
        let filled = self.last_served.get(volume);
        filled.is_some_and(|filled| now.saturating_sub(*filled) >= ROTATION_AFTER)
    }

    fn insert(&mut self, volume: [u8; 32], now: Duration) {
        if self.last_served.insert(volume, now).is_some() {
            return;
        }
        self.order.push_back(volume);
        if self.order.len() > MAX_SERVED_VOLUMES
            && let Some(oldest) = self.order.pop_front()
        {
            self.last_served.remove(&oldest);
        }
    }
}

impl fmt::Debug for ProviderServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServedProvider")
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}

#[tonic::async_trait]
impl CsiDriverProvider for ProviderServer {
    /// Says the version of the protocol whatever the caller's is, as upstream providers do.
    async fn version(
        &self,
        _request: Request<VersionRequest>,
    ) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(VersionResponse {
            version: PROTOCOL.to_owned(),
            runtime_name: RUNTIME.to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
        }))
    }

    async fn mount(
        &self,
        request: Request<MountRequest>,
    ) -> Result<Response<MountResponse>, Status> {
        let ask = ParsedMountRequest::parse(request.into_inner()).map_err(|problem| {
            grpc_status(
                &ProviderError::new(OutcomeCode::InvalidRequest, problem.to_string()).with_hint(
                    "see the driver: kubelets give it pod name and namespace (`podInfoOnMount`)",
                ),
            )
        })?;
        let volume = ask.volume_digest();
        let now = self.clock.monotonic();
        let was_filled =
            volume.is_some_and(|volume| self.served_volumes.lock().was_served_before(&volume, now));
        let urgency = ask.urgency(was_filled);
        let memory = self.memory.fetch_memory(urgency, MEMORY_TIMEOUT, &self.clock);
        match self.fetch_with_reservation(&ask.provider_request(urgency, &memory)).await {
            Ok(filling) => {
                if let Some(volume) = volume {
                    self.served_volumes.lock().insert(volume, self.clock.monotonic());
                }
                let mut response = Response::new(mount_response(filling, ask.permission));
                response.extensions_mut().insert(memory);
                Ok(response)
            }
            Err(refusal) => {
                tracing::warn!(
                    pod = %ask.pod,
                    code = %refusal.code,
                    hint = refusal.hint,
                    "a mount through the provider's socket failed: {refusal}"
                );
                Err(grpc_status(&refusal))
            }
        }
    }
}

/// Keeps the memory of an answer, which [`ProviderServer`] attaches to it, until it is encoded and sent.
pub(crate) async fn hold_memory_until_sent(
    mut response: http::Response<Body>,
) -> http::Response<Body> {
    let Some(memory) = response.extensions_mut().remove::<FetchMemory>() else { return response };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept = &memory;
            frame
        }))
    })
}

/// The answer; a file without a mode of its own gets that of the request.
fn mount_response(filling: ProviderResponse, permission: u32) -> MountResponse {
    let file = |file: crate::provider::ProviderFile| File {
        path: file.path.as_str().to_owned(),
        mode: i32::try_from(file.mode.unwrap_or(permission)).unwrap_or_default(),
        contents: file.content.expose().to_vec(),
    };
    let version = |object: crate::provider::ProviderObjectVersion| WireVersion {
        id: object.id,
        version: object.version,
    };
    MountResponse {
        object_version: filling.versions.into_iter().map(version).collect(),
        error: None,
        files: filling.files.into_iter().map(file).collect(),
    }
}

fn byte_length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The status for a driver that is not ours. Upstream's provider calls everything `Unknown`; these
/// are chosen for what drivers and kubelets make of them.
fn grpc_status(refusal: &ProviderError) -> Status {
    let heals = match refusal.code.recovery_mode() {
        RecoveryMode::Never => " (this does not heal by itself)",
        RecoveryMode::ByItself => "",
    };
    let text = format!("{}: {refusal}{heals}; hint: {}", refusal.code, refusal.hint);
    Status::new(grpc_code(refusal), text)
}

/// A driver asks again at once on `Unavailable`, so what throttles or lacks memory must not be called
/// that.
const fn grpc_code(refusal: &ProviderError) -> Code {
    match refusal.retry {
        RetryClass::Throttled { .. } => Code::ResourceExhausted,
        RetryClass::Denied => Code::PermissionDenied,
        RetryClass::Invalid => match refusal.code {
            OutcomeCode::PolicyDenied => Code::PermissionDenied,
            OutcomeCode::ObjectNotFound => Code::NotFound,
            OutcomeCode::InvalidRequest | OutcomeCode::SecretProviderClassInvalid => {
                Code::InvalidArgument
            }
            _ => Code::FailedPrecondition,
        },
        // Retry classes that are added later count as transient.
        _ => match refusal.code {
            OutcomeCode::VolumeMemoryExhausted => Code::ResourceExhausted,
            _ => Code::Unavailable,
        },
    }
}
