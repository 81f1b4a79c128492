//! Processes a request: endpoint, fault rules, operation, headers, request log, state file.

mod large_bodies;
mod state_writes;

use std::sync::OnceLock;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_emulator_state::azure_clouds::{AzureClouds, ServiceEndpoint};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::fault_rules::{
    CertificateProblem, FaultEffect, FaultPhase, ReplyChange, ReplyDelivery,
};
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::RsaKeyError;
use lanyard_emulator_state::request::{RequestScheme, ServiceReply, ServiceRequest};
use lanyard_vocabulary::EntraClientId;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use crate::authority::LocalAuthority;
use crate::emulated_service::operations::{OperationLookup, ServiceOperation};
use crate::emulated_service::{EngineError, ScheduledWork, ServiceSet};
use crate::exclusive_writes::ExclusiveWrite;
use crate::fault_replies::replacement_reply;
pub use crate::ingress::Ingress;
use crate::ingress::{resolve_endpoint, tunnel_rejection};
use crate::operation_context::{OperationContext, StateChange, UnlockedWork};
use crate::path_parameters::PathParameters;
use crate::pregenerated_keys::PregeneratedKeys;
use crate::request_log::{RequestLog, RequestLogEntry};
use crate::service_caches::ServiceCaches;
use crate::service_headers::ServiceHeaders;
use crate::state_store::{PendingCommit, StateStoreError, StateWriter};

/// The engine's reply to the client.
#[derive(Debug)]
pub struct EngineReply {
    pub reply: ServiceReply,
    /// The commit of the changes. The reply is sent after the commit has completed.
    pub commit: PendingCommit,
    /// The delay before the reply is sent.
    pub delay: Duration,
    /// How the connection delivers the reply.
    pub delivery: ReplyDelivery,
    /// The write that is in progress until the reply is sent.
    pub exclusive_write: Option<ExclusiveWrite>,
}

/// The effects of a fault rule on a reply.
#[derive(Debug, Default)]
struct AppliedFault {
    /// The reply in place of the operation's.
    replacement: Option<ServiceReply>,
    /// The change of the operation's reply.
    change: Option<ReplyChange>,
    delay: Duration,
    delivery: ReplyDelivery,
}

/// The outcome of the first attempt of a request.
#[derive(Debug)]
pub enum RequestProgress {
    Complete(EngineReply),
    /// The operation needs new keys or the result of another slow function.
    WorkSuspended(SuspendedRequest),
    /// Scheduled work is due before the request, and it is slow. Nothing has happened yet.
    WorkDue,
}

/// A request that waits for the slow work of its operation. Faults were applied before.
#[derive(Debug)]
pub struct SuspendedRequest {
    began: Duration,
    place: ServiceEndpoint,
    trace: RequestTrace,
    fault: AppliedFault,
    work: UnlockedWork,
}

/// The mutable state of the emulator.
#[derive(Debug)]
pub struct State {
    /// The emulated Azure state.
    pub azure: AzureState,
    /// The generator of new ids.
    pub ids: IdGenerator,
    /// Caches that are not part of the stored state.
    pub caches: ServiceCaches,
}

impl State {
    /// A state with empty caches.
    pub fn new(azure: AzureState, ids: IdGenerator) -> Self {
        Self { azure, ids, caches: ServiceCaches::default() }
    }
}

/// The emulator without its listener.
#[derive(Debug)]
pub struct EmulatorEngine {
    /// The emulator's clock.
    pub clock: SharedClock,
    /// The local certificate authority.
    pub authority: std::sync::Arc<LocalAuthority>,
    /// The clouds whose host names the emulator serves.
    pub clouds: AzureClouds,
    pub services: &'static ServiceSet,
    /// Locked while an operation runs: everything else that a request needs happens before or after.
    state: Mutex<State>,
    /// Lock order: after the state, or without locking the state.
    request_log: Mutex<RequestLog>,
    keys: PregeneratedKeys,
    writer: Option<StateWriter>,
    /// The URL of the listener.
    local_url: OnceLock<String>,
}

/// Fields of the request log entry that are determined during processing.
#[derive(Debug, Default)]
struct RequestTrace {
    service: Option<AzureService>,
    operation: Option<&'static str>,
    caller: Option<EntraClientId>,
    unimplemented: bool,
    fault: Option<String>,
    state_change: StateChange,
    exclusive_write: Option<ExclusiveWrite>,
}

impl EmulatorEngine {
    /// Creates an engine with a state.
    pub fn new(
        clock: SharedClock,
        authority: std::sync::Arc<LocalAuthority>,
        clouds: AzureClouds,
        services: &'static ServiceSet,
        state: State,
        writer: Option<StateWriter>,
    ) -> Self {
        let state = Mutex::new(state);
        let request_log = Mutex::new(RequestLog::default());
        let keys = PregeneratedKeys::of_process();
        Self {
            clock,
            authority,
            clouds,
            services,
            state,
            request_log,
            keys,
            writer,
            local_url: OnceLock::new(),
        }
    }

    /// Sets the URL of the listener, which replies may name. Only the first call has an effect.
    pub fn set_local_url(&self, url: String) {
        self.local_url.get_or_init(|| url);
    }

    /// Locks the state for a short read or change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Locks the request log for a short read.
    pub fn request_log(&self) -> MutexGuard<'_, RequestLog> {
        self.request_log.lock()
    }

    /// Processes a request to its end. Slow if the operation has slow work, or if scheduled work is due.
    pub fn handle_request(&self, request: &ServiceRequest, ingress: Ingress) -> EngineReply {
        loop {
            match self.begin_request(request, ingress) {
                RequestProgress::Complete(reply) => return reply,
                RequestProgress::WorkSuspended(suspended) => {
                    return self.resume_request(request, suspended);
                }
                RequestProgress::WorkDue => self.perform_due_work(),
            }
        }
    }

    /// Processes a request, unless something slow has to happen before.
    pub(crate) fn begin_request(
        &self,
        request: &ServiceRequest,
        ingress: Ingress,
    ) -> RequestProgress {
        let began = self.clock.monotonic();
        let mut trace = RequestTrace::default();
        let place = match resolve_endpoint(&self.clouds, request, ingress) {
            Ok(place) => place,
            Err(rejection) => {
                let rejected = (rejection, AppliedFault::default());
                let reply = self.complete(self.state.lock(), request, trace, rejected, began);
                return RequestProgress::Complete(reply);
            }
        };
        let mut work = UnlockedWork::new(self.keys.clone());
        let routed = RoutedRequest::new(self.services, request, place.clone());
        let mut state = self.state.lock();
        let now = state.azure.clock.emulated_time(self.clock.now());
        if self.services.due_work(&state.azure, now).is_some() {
            return RequestProgress::WorkDue;
        }
        let mut fault = self.apply_fault_rules(&mut state, request, place.service, now, &mut trace);
        let reply = match fault.replacement.take() {
            Some(reply) => reply,
            None => self.run_operation(&mut state, routed, &mut trace, &mut work),
        };
        if work.is_pending() {
            let suspended = SuspendedRequest { began, place, trace, fault, work };
            return RequestProgress::WorkSuspended(suspended);
        }
        RequestProgress::Complete(self.complete(state, request, trace, (reply, fault), began))
    }

    /// Performs the slow work of a request, while the state is not locked, and processes the request. Slow.
    pub(crate) fn resume_request(
        &self,
        request: &ServiceRequest,
        suspended: SuspendedRequest,
    ) -> EngineReply {
        let SuspendedRequest { began, place, mut trace, fault, mut work } = suspended;
        loop {
            let generated = work.perform();
            let routed = RoutedRequest::new(self.services, request, place.clone());
            let mut state = self.state.lock();
            let reply = match generated {
                Ok(()) => self.run_operation(&mut state, routed, &mut trace, &mut work),
                Err(error) => key_generation_failed_reply(&error),
            };
            if !work.is_pending() {
                return self.complete(state, request, trace, (reply, fault), began);
            }
        }
    }

    /// Submits the changes, unlocks the state, adds the common headers, and records the request.
    fn complete(
        &self,
        mut state: MutexGuard<'_, State>,
        request: &ServiceRequest,
        mut trace: RequestTrace,
        (mut reply, fault): (ServiceReply, AppliedFault),
        began: Duration,
    ) -> EngineReply {
        let exclusive_write = trace.exclusive_write.take();
        let now = state.azure.clock.emulated_time(self.clock.now());
        let State { azure, ids, .. } = &mut *state;
        let submitted = match trace.state_change {
            StateChange::Unchanged => Ok(PendingCommit::none()),
            StateChange::RowsChanged => self.submit_changes(azure, ids),
            StateChange::Replaced => self.submit_all(azure, ids),
        };
        let commit = submitted.unwrap_or_else(|error| {
            reply = state_write_failed_reply(&error);
            PendingCommit::none()
        });
        if let Some(change) = fault.change {
            reply = change.apply(reply, request, azure);
        }
        let headers = ServiceHeaders::collect(request, trace.service, azure, ids, now);
        drop(state);
        let reply = headers.add_to(reply, request);
        if !is_control_read(request, &trace, &reply) {
            let elapsed = self.clock.monotonic().saturating_sub(began);
            self.record(request_log_entry(request, trace, &reply, now, elapsed));
        }
        let AppliedFault { delay, delivery, .. } = fault;
        EngineReply { reply, commit, delay, delivery, exclusive_write }
    }

    fn record(&self, entry: RequestLogEntry) {
        let dropped = self.request_log.lock().append(entry);
        // Frees the oldest entry after the log is unlocked.
        drop(dropped);
    }

    /// Rejects a tunnel to a host that is not Azure's; returns `None` if the tunnel is allowed.
    pub(crate) fn reject_tunnel(&self, host: &str, port: u16) -> Option<ServiceReply> {
        let rejection = tunnel_rejection(&self.clouds, host, port)?;
        Some(self.record_rejection(&ServiceRequest::connect(host, port), rejection))
    }

    /// Records a request that was rejected before it reached a service.
    pub(crate) fn record_rejection(
        &self,
        request: &ServiceRequest,
        rejection: ServiceReply,
    ) -> ServiceReply {
        let mut state = self.state.lock();
        let now = state.azure.clock.emulated_time(self.clock.now());
        let State { azure, ids, .. } = &mut *state;
        let headers = ServiceHeaders::collect(request, None, azure, ids, now);
        drop(state);
        let reply = headers.add_to(rejection, request);
        let trace = RequestTrace::default();
        self.record(request_log_entry(request, trace, &reply, now, Duration::ZERO));
        reply
    }

    /// Finds the fault rule that affects a request.
    fn apply_fault_rules(
        &self,
        state: &mut State,
        request: &ServiceRequest,
        service: AzureService,
        now: Timestamp,
        trace: &mut RequestTrace,
    ) -> AppliedFault {
        trace.service = Some(service);
        if state.azure.faults.is_empty() {
            return AppliedFault::default();
        }
        let hit = state.azure.faults.match_request(service, request, now);
        let Some(hit) = hit else { return AppliedFault::default() };
        let replacement = match hit.effect {
            FaultEffect::TokenError { code } => {
                let error = EngineError::TokenService { code, now, ids: &mut state.ids };
                Some((self.services.error_format(AzureService::Entra))(error))
            }
            _ => replacement_reply(&hit, self.services.error_format(service)),
        };
        let (change, delay) = (hit.effect.reply_change(), hit.delay());
        let delivery = hit.effect.delivery();
        trace.fault = Some(hit.rule_name);
        AppliedFault { replacement, change, delay, delivery }
    }

    /// Performs the scheduled work that is due, and waits until its changes are written. Failed work is logged,
    /// and affects no client.
    fn perform_due_work(&self) {
        let mut state = self.state.lock();
        let State { azure, ids, .. } = &mut *state;
        let now = azure.clock.emulated_time(self.clock.now());
        let Some(ScheduledWork { perform, .. }) = self.services.due_work(azure, now) else {
            return;
        };
        if let Err(error) = perform(self.services, azure, ids, now) {
            tracing::warn!(%error, "scheduled work failed");
        }
        let submitted = self.submit_changes(azure, ids);
        drop(state);
        if let Err(error) = submitted.and_then(PendingCommit::wait_blocking) {
            tracing::warn!(%error, "the changes of scheduled work were not written");
        }
    }

    /// The fault of the certificate for a host, if a rule affects the handshake. Records it in the request
    /// log.
    pub fn match_handshake(&self, host: &str) -> Option<CertificateProblem> {
        let mut state = self.state.lock();
        if !state.azure.faults.affect(FaultPhase::Handshake) {
            return None;
        }
        let service = self.clouds.endpoint_of_host(host)?.service;
        let now = state.azure.clock.emulated_time(self.clock.now());
        let (rule, problem) = state.azure.faults.match_handshake(service, host, now)?;
        drop(state);
        self.record(RequestLogEntry::of_connection(
            FaultPhase::Handshake,
            service,
            host,
            rule,
            now,
        ));
        Some(problem)
    }

    /// Whether a fault rule half-closes the tunnel to a host. Records it in the request log.
    pub(crate) fn half_closes_tunnel(&self, host: &str) -> bool {
        let mut state = self.state.lock();
        if !state.azure.faults.affect(FaultPhase::Tunnel) {
            return false;
        }
        let Some(endpoint) = self.clouds.endpoint_of_host(host) else { return false };
        let service = endpoint.service;
        let now = state.azure.clock.emulated_time(self.clock.now());
        let Some(rule) = state.azure.faults.match_tunnel(service, host, now) else { return false };
        drop(state);
        self.record(RequestLogEntry::of_connection(FaultPhase::Tunnel, service, host, rule, now));
        true
    }

    /// Whether a fault rule changes the certificates of TLS connections.
    pub(crate) fn has_handshake_faults(&self) -> bool {
        self.state.lock().azure.faults.affect(FaultPhase::Handshake)
    }

    fn run_operation(
        &self,
        state: &mut State,
        routed: RoutedRequest<'_>,
        trace: &mut RequestTrace,
        work: &mut UnlockedWork,
    ) -> ServiceReply {
        let RoutedRequest { request, place, operation } = routed;
        let (operation, parameters) = match operation {
            OperationLookup::Found(operation, parameters) => (operation, parameters),
            OperationLookup::NotFound(nearest) => {
                trace.unimplemented = true;
                let format = self.services.error_format(place.service);
                return not_implemented_reply(place.service, request, nearest, format);
            }
        };
        trace.operation = Some(operation.id);
        let mut call = self.operation_context(state, request, place, &parameters, work);
        let reply = (operation.handler)(&mut call).unwrap_or_else(|rejection| rejection);
        trace.caller = call.caller;
        trace.state_change = trace.state_change.max(call.state_change);
        trace.exclusive_write = call.exclusive_write;
        reply
    }

    fn operation_context<'a>(
        &'a self,
        state: &'a mut State,
        request: &'a ServiceRequest,
        endpoint: ServiceEndpoint,
        parameters: &'a PathParameters<'a>,
        work: &'a mut UnlockedWork,
    ) -> OperationContext<'a> {
        let State { azure, ids, caches } = state;
        let system_now = self.clock.now();
        OperationContext {
            request,
            endpoint,
            now: azure.clock.emulated_time(system_now),
            system_now,
            ids,
            work,
            parameters,
            caller: None,
            state_change: StateChange::Unchanged,
            exclusive_write: None,
            azure,
            request_log: &self.request_log,
            clouds: &self.clouds,
            services: self.services,
            caches,
            local_url: self.local_url.get().map(String::as_str),
            authority: &self.authority,
        }
    }
}

/// A request with its operation.
#[derive(Debug)]
struct RoutedRequest<'a> {
    request: &'a ServiceRequest,
    place: ServiceEndpoint,
    operation: OperationLookup<'a>,
}

impl<'a> RoutedRequest<'a> {
    fn new(
        services: &'static ServiceSet,
        request: &'a ServiceRequest,
        place: ServiceEndpoint,
    ) -> Self {
        let segments = services.route_segments(place.service, request);
        let operation = services.routes(place.service).find(request, &segments);
        Self { request, place, operation }
    }
}

/// Whether a request only reads the control API. The request log omits these requests: a client that waits for
/// new entries would cause new entries.
fn is_control_read(request: &ServiceRequest, trace: &RequestTrace, reply: &ServiceReply) -> bool {
    trace.service == Some(AzureService::Control)
        && request.method == Method::GET
        && reply.status.is_success()
}

/// The reply to a change that is in memory, but could not be written to the disk: the client must
/// not rely on it.
pub(crate) fn state_write_failed_reply(error: &StateStoreError) -> ServiceReply {
    let message = format!("The state could not be written: {error}.");
    ServiceReply::json(
        StatusCode::INTERNAL_SERVER_ERROR,
        &json!({ "error": { "code": "InternalServerError", "message": message } }),
    )
    .with_rejection_reason("state not written")
}

fn key_generation_failed_reply(error: &RsaKeyError) -> ServiceReply {
    let message = format!("A key could not be generated: {error}.");
    ServiceReply::json(
        StatusCode::INTERNAL_SERVER_ERROR,
        &json!({ "error": { "code": "InternalServerError", "message": message } }),
    )
    .with_rejection_reason("key not generated")
}

/// The reply to an operation that the emulator does not implement.
fn not_implemented_reply(
    service: AzureService,
    request: &ServiceRequest,
    nearest: Option<&'static ServiceOperation>,
    error_format: fn(EngineError<'_>) -> ServiceReply,
) -> ServiceReply {
    let (method, path) = (request.method.as_str(), &request.path);
    let hint = nearest.map_or_else(
        || "It has no operation of this resource provider.".to_owned(),
        |row| {
            format!(
                "The most similar operation is `{}` ({} {}).",
                row.id,
                row.method,
                row.displayed_path()
            )
        },
    );
    let message = format!(
        "lanyard's local Azure does not implement `{method} {path}` of `{}`. {hint}",
        service.name()
    );
    let nearest = nearest.map(|row| row.id);
    error_format(EngineError::NotImplemented { request, message, nearest })
        .with_rejection_reason("operation not implemented")
}

fn request_log_entry(
    request: &ServiceRequest,
    trace: RequestTrace,
    reply: &ServiceReply,
    now: Timestamp,
    elapsed: Duration,
) -> RequestLogEntry {
    // The value is untrusted; only text in the form of a version is recorded.
    let version = request.query("api-version").filter(|text| {
        text.len() <= 32 && text.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    });
    RequestLogEntry {
        sequence: 0,
        time: now,
        service: trace.service.map(AzureService::name),
        operation: trace.operation,
        method: request.method.as_str().to_owned(),
        host: request.host.clone(),
        path: request.path.clone(),
        api_version: version.map(ToOwned::to_owned),
        user_agent: request.header("user-agent").map(ToOwned::to_owned),
        status: reply.status.as_u16(),
        tls: request.scheme == RequestScheme::Https,
        caller: trace.caller,
        micros: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        rejection: reply.rejection_reason.clone(),
        missing: trace.unimplemented,
        fault: trace.fault,
    }
}
