//! The context of an operation: the request with the emulator's state.

use std::any::Any;
use std::sync::Arc;

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_state::azure_clouds::{AzureClouds, ServiceEndpoint};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::{
    AsymmetricKey, AsymmetricKeyError, AsymmetricKeyType, RsaKey, RsaKeyError, RsaKeySize,
};
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_vocabulary::EntraClientId;
use parking_lot::Mutex;

use crate::authority::LocalAuthority;
use crate::emulated_service::ServiceSet;
use crate::exclusive_writes::ExclusiveWrite;
use crate::path_parameters::PathParameters;
use crate::pregenerated_keys::PregeneratedKeys;
use crate::request_log::RequestLog;
use crate::service_caches::ServiceCaches;
use crate::snapshot::StateSnapshot;
use crate::token::{AuthenticatedCaller, BearerTokenError, verify_bearer};

/// The slow work of an operation, which the engine performs while the state is not locked: it generates RSA keys, and
/// runs what the operation passes to [`OperationContext::run_unlocked`].
pub struct UnlockedWork {
    reserve: PregeneratedKeys,
    /// Keys that were generated for this request.
    generated: Vec<(RsaKeySize, RsaKey)>,
    /// The sizes of the keys without which the operation cannot run.
    missing: Vec<RsaKeySize>,
    /// The function without whose result the operation cannot run.
    function: Option<Box<dyn FnOnce() -> FunctionResult + Send>>,
    result: Option<FunctionResult>,
}

/// The result of a function that ran while the state was not locked.
type FunctionResult = Box<dyn Any + Send>;

lanyard_vocabulary::debug_fields!(UnlockedWork { missing });

impl UnlockedWork {
    pub fn new(reserve: PregeneratedKeys) -> Self {
        Self { reserve, generated: Vec::new(), missing: Vec::new(), function: None, result: None }
    }

    /// Whether the operation has to run again after the work.
    pub(crate) fn is_pending(&self) -> bool {
        !self.missing.is_empty() || self.function.is_some()
    }

    /// Performs the work. Slow.
    ///
    /// # Errors
    ///
    /// Returns an error if the random source fails.
    pub(crate) fn perform(&mut self) -> Result<(), RsaKeyError> {
        if let Some(function) = self.function.take() {
            self.result = Some(function());
        }
        let sizes = std::mem::take(&mut self.missing);
        let keys = RsaKey::generate_all(&sizes)?;
        self.generated.extend(sizes.into_iter().zip(keys));
        Ok(())
    }

    fn take(&mut self, size: RsaKeySize) -> Option<RsaKey> {
        let at = self.generated.iter().position(|(generated, _)| *generated == size);
        at.map(|at| self.generated.swap_remove(at).1).or_else(|| self.reserve.take(size))
    }
}

impl Drop for UnlockedWork {
    fn drop(&mut self) {
        self.reserve.put_back(std::mem::take(&mut self.generated));
    }
}

/// The context of an operation. [`OperationContext::azure_mut`] marks the state as changed, so that it is
/// written to the state file.
#[derive(Debug)]
pub struct OperationContext<'a> {
    pub request: &'a ServiceRequest,
    /// The service and the cloud of the host.
    pub endpoint: ServiceEndpoint,
    /// The clouds of the emulator.
    pub clouds: &'a AzureClouds,
    /// The registered services.
    pub services: &'static ServiceSet,
    /// The emulated time.
    pub now: Timestamp,
    /// The time of the system clock, which may differ from the emulated time.
    pub system_now: Timestamp,
    /// The generator of new ids.
    pub ids: &'a mut IdGenerator,
    /// The source of new keys, and other slow work.
    pub work: &'a mut UnlockedWork,
    /// The request log, for the control API.
    pub request_log: &'a Mutex<RequestLog>,
    /// Caches that are not part of the stored state.
    pub caches: &'a mut ServiceCaches,
    /// The URL of the emulator's own port, such as `http://127.0.0.1:7750`; `None` without a listener.
    pub local_url: Option<&'a str>,
    /// The local certificate authority, for the control API.
    pub authority: &'a LocalAuthority,
    pub parameters: &'a PathParameters<'a>,
    pub caller: Option<EntraClientId>,
    pub(crate) state_change: StateChange,
    pub(crate) exclusive_write: Option<ExclusiveWrite>,
    pub azure: &'a mut AzureState,
}

/// What an operation did to the state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateChange {
    #[default]
    Unchanged,
    /// Some rows changed.
    RowsChanged,
    /// The complete state was replaced.
    Replaced,
}

/// The query parameter `api-version` is missing or malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiVersionError {
    /// The query has no `api-version`.
    Missing,
    /// The value is not a version.
    Malformed(String),
}

impl<'a> OperationContext<'a> {
    /// The value of a placeholder in the operation's path. It does not borrow from the context, so a handler may
    /// keep it while it changes the state.
    pub fn path_parameter(&self, name: &str) -> &'a str {
        self.parameters.value(name)
    }

    /// Begins a write that excludes other writes to the object until the reply is sent. Returns whether no other
    /// write to the object is in progress.
    pub fn begin_exclusive_write(&mut self, object: &str) -> bool {
        self.exclusive_write = self.caches.exclusive_writes.begin(object);
        self.exclusive_write.is_some()
    }

    /// The state, for reading.
    pub fn azure(&self) -> &AzureState {
        self.azure
    }

    /// The state, for changes.
    pub fn azure_mut(&mut self) -> &mut AzureState {
        self.state_change = self.state_change.max(StateChange::RowsChanged);
        self.azure
    }

    /// State and id generator together, for functions that create objects.
    pub fn azure_and_ids(&mut self) -> (&mut AzureState, &mut IdGenerator) {
        self.state_change = self.state_change.max(StateChange::RowsChanged);
        (self.azure, self.ids)
    }

    /// Replaces the complete state, and discards what the services cached.
    pub fn restore_snapshot(&mut self, snapshot: StateSnapshot) {
        let StateSnapshot { azure, ids } = snapshot;
        *self.azure = azure;
        *self.ids = ids;
        *self.caches = ServiceCaches::default();
        self.state_change = StateChange::Replaced;
    }

    /// Returns a new private key, like [`Self::new_keys`].
    pub fn new_key(
        &mut self,
        key_type: AsymmetricKeyType,
        error_reply: impl Fn(&AsymmetricKeyError) -> ServiceReply,
    ) -> Result<AsymmetricKey, ServiceReply> {
        let key = self.new_keys(&[key_type], &error_reply)?.pop();
        key.ok_or_else(|| error_reply(&RsaKeyError::Generation.into()))
    }

    /// Returns new private keys, all or none. With a seed, they are reproducible.
    ///
    /// # Errors
    ///
    /// The handler returns the error unchanged, before it changes the state. Either a key could not be
    /// generated, and the error is that of `error_reply`. Or the engine has to generate keys first: then it
    /// does so and runs the handler again.
    pub fn new_keys(
        &mut self,
        types: &[AsymmetricKeyType],
        error_reply: impl Fn(&AsymmetricKeyError) -> ServiceReply,
    ) -> Result<Vec<AsymmetricKey>, ServiceReply> {
        let (mut keys, mut missing) = (Vec::new(), Vec::new());
        for kind in types {
            match kind {
                AsymmetricKeyType::Rsa(size) => {
                    if let Some(key) = self.ids.next_rsa_key(*size) {
                        let key = key.map_err(|error| error_reply(&error.into()))?;
                        keys.push((None, AsymmetricKey::Rsa(key)));
                    } else if let Some(key) = self.work.take(*size) {
                        keys.push((Some(*size), AsymmetricKey::Rsa(key)));
                    } else {
                        missing.push(*size);
                    }
                }
                AsymmetricKeyType::Ec(curve) => {
                    let key = self
                        .ids
                        .generate_ec_key(*curve)
                        .map_err(|error| error_reply(&error.into()))?;
                    keys.push((None, AsymmetricKey::Ec(key)));
                }
            }
        }
        if missing.is_empty() {
            return Ok(keys.into_iter().map(|(_, key)| key).collect());
        }
        self.work.missing = missing;
        for taken in keys {
            if let (Some(size), AsymmetricKey::Rsa(key)) = taken {
                self.work.generated.push((size, key));
            }
        }
        let reply =
            ServiceReply::text(StatusCode::SERVICE_UNAVAILABLE, "the key is being generated");
        Err(reply.with_rejection_reason("key not generated yet"))
    }

    /// Returns the result of a slow function, which the engine runs while the state is not locked. An operation may
    /// have one.
    ///
    /// # Errors
    ///
    /// The handler returns the error unchanged, before it changes the state: the engine runs the function, and then
    /// the handler again.
    pub fn run_unlocked<T: Send + 'static>(
        &mut self,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServiceReply> {
        if let Some(Ok(result)) = self.work.result.take().map(<FunctionResult>::downcast) {
            return Ok(*result);
        }
        self.work.function = Some(Box::new(|| Box::new(function())));
        let reply = ServiceReply::text(StatusCode::SERVICE_UNAVAILABLE, "the request is processed");
        Err(reply.with_rejection_reason("not processed yet"))
    }

    /// Records the application for the request log.
    pub fn record_caller(&mut self, client: EntraClientId) {
        self.caller = Some(client);
    }

    /// Verifies the bearer token for one of `audiences`, compared exactly, and records the caller for the
    /// request log.
    pub fn authenticate_bearer(
        &mut self,
        audiences: &[impl AsRef<str>],
    ) -> Result<Arc<AuthenticatedCaller>, BearerTokenError> {
        let authorization = self.request.header("authorization");
        let cache = &mut self.caches.verified_tokens;
        let caller = verify_bearer(self.azure, cache, authorization, audiences, self.now)?;
        self.caller = Some(caller.app_id);
        Ok(caller)
    }

    /// The `api-version`: `2024-01-01` with an optional suffix such as `-preview`, or `7.4` and
    /// `7.6-preview.2` for vaults. Any well-formed version is accepted, including future ones.
    pub fn api_version(&self) -> Result<&str, ApiVersionError> {
        let text = self
            .request
            .query("api-version")
            .filter(|text| !text.is_empty())
            .ok_or(ApiVersionError::Missing)?;
        if is_well_formed_version(text) {
            Ok(text)
        } else {
            Err(ApiVersionError::Malformed(text.to_owned()))
        }
    }
}

fn is_well_formed_version(text: &str) -> bool {
    let digits = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let suffix = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
    };
    let mut parts = text.splitn(4, '-');
    let first = parts.next().unwrap_or_default();
    if let Some((major, minor)) = first.split_once('.') {
        let rest: Vec<_> = parts.collect();
        return digits(major, 2)
            && digits(minor, 2)
            && (rest.is_empty() || suffix(&rest.join("-")));
    }
    let (month, day) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let dated = first.len() == 4 && month.len() == 2 && day.len() == 2;
    dated
        && [first, month, day].iter().all(|part| digits(part, 4))
        && parts.next().is_none_or(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_api_versions_are_accepted() {
        for good in [
            "2024-01-01",
            "2031-12-31",
            "2025-05-31-preview",
            "7.4",
            "7.6-preview.2",
            "2026-03-01-preview",
            "1.1",
        ] {
            assert!(is_well_formed_version(good), "{good}");
        }
        for bad in [
            "",
            "latest",
            "2024",
            "2024-01",
            "2024-1-1",
            "20240-01-01",
            "2024-01-01-",
            "7.",
            ".4",
            "7.4-",
            "2024-01-01 ",
            "2024-01-01-pre view",
            "7.4;drop",
            "-",
            "7.4.1",
        ] {
            assert!(!is_well_formed_version(bad), "{bad:?}");
        }
    }
}
